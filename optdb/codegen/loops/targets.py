"""Targets for a fused loop's results: results are stored, folded, or added to other values.

Each work item or group accumulates into its own part, so that no item waits for another; readers add up the parts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from optdb.codegen.elementwise import WIDTH, Operand
from optdb.codegen.kernels import ctype
from optdb.codegen.loops.body import Buffer, Index
from optdb.codegen.loops.body import Operand as Result
from optdb.codegen.reductions.folds import identity_of
from optdb.codegen.scalars.code import scalar_code
from optdb.codegen.scalars.program import Scalar, ScalarProgram
from optdb.codegen.scalars.types import c_type
from optdb.codegen.source import filled, functions, joined, write_w

#: The extension that atomic additions to 8-byte numbers need.
WIDE_ATOMICS = "cl_khr_int64_base_atomics"


@dataclass(frozen=True)
class ElementStore:
    """A result that is stored in a buffer at an affine index."""

    result: Result
    buffer: Buffer
    index: Index


@dataclass(frozen=True)
class ScatterStore:
    """A result that is stored in a buffer at a computed index."""

    result: Result
    buffer: Buffer
    index: Result


@dataclass(frozen=True)
class Fold:
    """A result that is folded over the domain; the parts are contiguous in a buffer."""

    result: Result
    fold: str
    parts: Buffer
    number: int


@dataclass(frozen=True)
class ColumnSum:
    """A result that scales rows of a matrix; the scaled rows are then added up."""

    result: Result
    matrix: Buffer
    offset: int
    row_stride: int
    length: int
    parts: Buffer


@dataclass(frozen=True)
class Scatter:
    """A result that is added to one element of a part, at a computed index plus an offset."""

    result: Result
    index: Result
    offset: int
    size: int
    parts: Buffer
    #: The number of zero-initialized parts that work groups share; 0 if each item has its own.
    part_count: int = 0


Target = ElementStore | ScatterStore | Fold | ColumnSum | Scatter


def results_of(target: Target) -> list[Result]:
    """Return the results that a target uses."""
    if isinstance(target, ScatterStore | Scatter):
        return [target.result, target.index]
    return [target.result]


def atomic_addition(dtype: str) -> str:
    """Return the code of a function that atomically adds to a number of 4 or 8 bytes."""
    kind, is_wide = c_type(dtype), np.dtype(dtype).itemsize == 8
    bits = "ulong" if is_wide else "uint"
    words = {"T": kind, "BITS": bits, "AS_BITS": f"as_{bits}", "AS_T": f"as_{kind}"}
    words["COMPARE_EXCHANGE"] = "atom_cmpxchg" if is_wide else "atomic_cmpxchg"
    template = functions("loops/loops.cl")["add_atomically"]
    code = filled(template, add_atomically=f"add_atomically_{kind}", **words)
    return f"#pragma OPENCL EXTENSION {WIDE_ATOMICS} : enable\n{code}" if is_wide else code


class Loop(Protocol):
    """The part of a fused loop that its targets' code uses."""

    targets: Sequence[Target]
    program: ScalarProgram
    #: The number of points that an item computes at a time.
    width: int
    is_scalar: bool
    is_serial: bool
    group: int

    def name_of(self, buffer: Buffer) -> str:
        """Return a buffer's name in the code."""

    def factors(self, index: Index) -> list[int]:
        """Return the factors of an index, one for each axis of the loop."""


class TargetCode:
    """The statements that process a loop's results, which are named ``r0``, ``r1`` and so on."""

    def __init__(self, kernel: Loop) -> None:
        self._kernel = kernel
        #: The statements before the loop, in its body, and after it.
        self.begin: list[str] = []
        self.body: list[str] = []
        self.finish: list[str] = []
        #: Buffers whose parts the emitted code has already located.
        self._found: set[Buffer] = set()
        #: Statements for each lane: a template with placeholders, then the result and the index to substitute.
        self._added: list[tuple[str, str, str]] = []
        first = 0
        for number, target in enumerate(kernel.targets):
            count = len(results_of(target))
            self._add(number, target, *[f"r{n}" for n in range(first, first + count)])
            first += count
        if self._added:
            self.body.append(self._each_lane(self._added))

    def _add(self, number: int, target: Target, result: str, index: str = "") -> None:
        match target:
            case ElementStore():
                self.body.append(self._store(number, target, result))
            case ScatterStore():
                statement = f"{self._at(target.buffer)}[{{1}}] = {write_w(target.buffer.dtype)}({{0}});"
                self.body.append(self._each_lane([(statement, result, index)]))
            case Fold():
                self._fold(number, target, result)
            case ColumnSum():
                self._add_rows(target, result)
            case Scatter():
                self._scatter(target, result, index)

    def _at(self, buffer: Buffer) -> str:
        return f"{self._kernel.name_of(buffer)}_at"

    def _store(self, number: int, target: ElementStore, result: str) -> str:
        operand, at = Operand.of(result, target.buffer.dtype), self._at(target.buffer)
        if self._kernel.is_scalar:
            return f"{at}[{target.index.const}] = {operand.store}({result});"
        step = self._kernel.factors(target.index)[-1]
        if self._kernel.width > 1:
            return f"{operand.writer('loop')}({result}, {at} + s{number}_p, {step}, count);"
        return f"{at}[s{number}_p] = {operand.store}({result});"

    def _add_rows(self, target: ColumnSum, result: str) -> None:
        self._find_zeroed_part(target.parts, target.length)
        row = f"{self._at(target.matrix)} + {target.offset}L + {target.row_stride}L * (ga_ssize)i"
        kind, sums = c_type(target.matrix.dtype), f"{self._kernel.name_of(target.parts)}_mine"
        factor = result if self._kernel.width > 1 else f"({kind}{WIDTH})({result})"
        self.body.append(f"add_rows_{kind}({sums}, {row}, {target.row_stride}L, {factor}, count, {target.length}UL);")

    def _scatter(self, target: Scatter, result: str, index: str) -> None:
        element = f"{self._kernel.name_of(target.parts)}_mine[{{1}} + {target.offset}L]"
        if target.part_count:
            self._find_shared_part(target)
            statement = f"add_atomically_{c_type(target.parts.dtype)}(&{element}, {{0}});"
        else:
            self._find_zeroed_part(target.parts, target.size)
            statement = f"{element} += {{0}};"
        self._added.append((statement, result, index))

    def _find_shared_part(self, target: Scatter) -> None:
        if target.parts in self._found:
            return
        self._found.add(target.parts)
        name = self._kernel.name_of(target.parts)
        part = f"(GID_0 % {target.part_count}UL) * {target.size}UL"
        self.begin.append(f"GLOBAL_MEM {ctype(target.parts.dtype)} *{name}_mine = {name}_at + {part};")

    def _find_zeroed_part(self, parts: Buffer, size: int) -> None:
        if parts in self._found:
            return
        self._found.add(parts)
        name = self._kernel.name_of(parts)
        self.begin += [
            f"GLOBAL_MEM {ctype(parts.dtype)} *{name}_mine = {name}_at + item * {size}UL;",
            f"for (ga_size c = 0; c < {size}UL; ++c) {name}_mine[c] = 0;",
        ]

    def _each_lane(self, statements: Sequence[tuple[str, str, str]]) -> str:
        """Return the statements for each lane in use, with the result and the index in each template."""
        program = self._kernel.program
        if self._kernel.width == 1:
            return joined(statement.format(*values) for statement, *values in statements)
        dtypes = dict(zip([f"r{n}" for n in range(len(program.results))], program.out_dtypes))
        # Identical results, such as an index that several statements use, share one variable.
        first = {result: f"r{program.results.index(result)}" for result in program.results}
        names = {f"r{n}": first[result] for n, result in enumerate(program.results)}
        lines = ["{"]
        for value in dict.fromkeys(names[value] for _, *values in statements for value in values):
            kind = c_type(dtypes[value])
            lines.append(f"union {{ {kind}{WIDTH} v; {kind} s[{WIDTH}]; }} {value}_lanes; {value}_lanes.v = {value};")
        each = [
            statement.format(*[f"{names[value]}_lanes.s[l]" for value in values]) for statement, *values in statements
        ]
        return joined([*lines, "for (int l = 0; l < count; ++l) {", *each, "}", "}"])

    def _fold(self, number: int, target: Fold, result: str) -> None:
        fold = _FoldCode(number, target, f"{self._at(target.parts)}[{target.number}UL * items + item]")
        width = self._kernel.width
        self.begin.append(fold.declared(width))
        self.body += fold.taken(result, width)
        if width > 1:
            self.finish += fold.finished_by_lanes()
        elif self._kernel.is_serial:
            self.finish.append(fold.stored(fold.acc))
        else:
            self.finish += fold.finished_by_group(self._kernel.group)


class _FoldCode:
    def __init__(self, number: int, target: Fold, part: str) -> None:
        dtype = target.parts.dtype
        self.acc, self._whole, self._part = f"acc{number}", f"whole{number}", part
        self._kind, self._identity = c_type(dtype), identity_of(target.fold, dtype)
        self._combine, self._write = ScalarProgram.of(Scalar(target.fold, dtype), [dtype] * 2), write_w(dtype)

    def _combined(self, into: str, value: str, width: int = 1) -> str:
        return scalar_code(self._combine, [into, value], [into], width=width).statements

    def stored(self, value: str) -> str:
        """Return the statement that stores the part."""
        return f"{self._part} = {self._write}({value});"

    def declared(self, width: int) -> str:
        """Return the accumulator's declaration."""
        if width == 1:
            return f"{self._kind} {self.acc} = {self._identity};"
        return f"{self._kind}{WIDTH} {self.acc} = ({self._kind}{WIDTH})({self._identity});"

    def taken(self, result: str, width: int) -> list[str]:
        """Return the statements that fold a result; lanes beyond the last point are replaced with the identity."""
        combined = ["{", self._combined(self.acc, result, width), "}"]
        if width == 1:
            return combined
        return [
            f"if (count < {WIDTH}) {{",
            f"union {{ {self._kind}{WIDTH} v; {self._kind} s[{WIDTH}]; }} tail; tail.v = {result};",
            f"for (int l = count; l < {WIDTH}; ++l) tail.s[l] = {self._identity};",
            f"{result} = tail.v;",
            "}",
            *combined,
        ]

    def finished_by_lanes(self) -> list[str]:
        """Return the statements that fold the lanes of the accumulator."""
        return [
            "{",
            f"union {{ {self._kind}{WIDTH} v; {self._kind} s[{WIDTH}]; }} lanes; lanes.v = {self.acc};",
            f"{self._kind} {self._whole} = lanes.s[0];",
            f"for (int l = 1; l < {WIDTH}; ++l) {{",
            f"const {self._kind} other = lanes.s[l];",
            self._combined(self._whole, "other"),
            "}",
            self.stored(self._whole),
            "}",
        ]

    def finished_by_group(self, group: int) -> list[str]:
        """Return the statements that fold the accumulators of a group's items."""
        shared = f"shared_{self._kind}"
        return [
            f"{shared}[LID_0] = {self.acc};",
            "local_barrier();",
            f"for (uint half_of = {group // 2}; half_of > 0; half_of /= 2) {{",
            "if (LID_0 < half_of) {",
            f"{self._kind} {self._whole} = {shared}[LID_0];",
            f"const {self._kind} other = {shared}[LID_0 + half_of];",
            self._combined(self._whole, "other"),
            f"{shared}[LID_0] = {self._whole};",
            "}",
            "local_barrier();",
            "}",
            f"if (LID_0 == 0) {self.stored(f'{shared}[0]')}",
            "local_barrier();",
        ]
