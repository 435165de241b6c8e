"""Targets for a fused loop's results: results are stored, folded, or added to other values.

Each work item or group accumulates into its own part, so that no item waits for another; readers add up the parts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from optdb.codegen.elementwise import WIDTH, Operand
from optdb.codegen.kernels import ctype
from optdb.codegen.loops.body import Buffer, Index
from optdb.codegen.loops.body import Operand as Result
from optdb.codegen.reductions.folds import identity_of
from optdb.codegen.scalars.code import scalar_code
from optdb.codegen.scalars.program import Scalar, ScalarProgram
from optdb.codegen.scalars.types import c_type
from optdb.codegen.source import body, filled, functions, joined, write_w

if TYPE_CHECKING:
    from optdb.codegen.loops.kernel import LoopKernel

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


class TargetCode:
    """The statements that process a loop's results, which are named ``r0``, ``r1`` and so on."""

    def __init__(self, kernel: LoopKernel) -> None:
        self._kernel = kernel
        #: The statements before the loop, in its body, and after it.
        self.begin: list[str] = []
        self.body: list[str] = []
        self.finish: list[str] = []
        #: The functions that the statements call.
        self.functions: list[str] = []
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
        self._find_part(target.parts, f"item * {target.length}UL", target.length)
        row = f"{self._at(target.matrix)} + {target.offset}L + {target.row_stride}L * (ga_ssize)i"
        kind, sums = c_type(target.matrix.dtype), f"{self._kernel.name_of(target.parts)}_mine"
        factor = result if self._kernel.width > 1 else f"({kind}{WIDTH})({result})"
        self.body.append(f"add_rows_{kind}({sums}, {row}, {target.row_stride}L, {factor}, count, {target.length}UL);")

    def _scatter(self, target: Scatter, result: str, index: str) -> None:
        element = f"{self._kernel.name_of(target.parts)}_mine[{{1}} + {target.offset}L]"
        if target.part_count:
            self._find_part(target.parts, f"(GID_0 % {target.part_count}UL) * {target.size}UL")
            statement = f"add_atomically_{c_type(target.parts.dtype)}(&{element}, {{0}});"
        else:
            self._find_part(target.parts, f"item * {target.size}UL", target.size)
            statement = f"{element} += {{0}};"
        self._added.append((statement, result, index))

    def _find_part(self, parts: Buffer, offset: str, zeros: int = 0) -> None:
        if parts in self._found:
            return
        self._found.add(parts)
        name = self._kernel.name_of(parts)
        self.begin.append(f"GLOBAL_MEM {ctype(parts.dtype)} *{name}_mine = {name}_at + {offset};")
        if zeros:
            self.begin.append(f"for (ga_size c = 0; c < {zeros}UL; ++c) {name}_mine[c] = 0;")

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
        dtype, width = target.parts.dtype, self._kernel.width
        kind, acc, combine = c_type(dtype), f"acc{number}", f"combine{number}"
        identity, write = identity_of(target.fold, dtype), write_w(dtype)
        program = ScalarProgram.of(Scalar(target.fold, dtype), [dtype] * 2)
        part = f"{self._at(target.parts)}[{target.number}UL * items + item]"
        code = {**functions("reductions/reductions.cl"), **functions("loops/loops.cl")}
        words = {"ACC": kind, "VECTOR": f"{kind}{WIDTH}", "WIDTH": WIDTH, "IDENTITY": identity}

        def function(name: str, width: int) -> str:
            statements = scalar_code(program, ["acc", "x"], ["acc"], width=width).statements
            return filled(code[name], **words, **{name: f"{name}{number}", name.upper(): statements})

        def inlined(name: str, **others: object) -> str:
            return filled(body(code[name]), **words, acc=acc, combine=combine, **others)

        self.functions.append(function("combine", 1))
        if width > 1:
            self.functions.append(function("combine_vectors", width))
            self.begin.append(f"{kind}{WIDTH} {acc} = ({kind}{WIDTH})({identity});")
            self.body += [inlined("whole_vector", x=result), f"{acc} = combine_vectors{number}({acc}, {result});"]
            self.finish += ["{", inlined("fold_lanes"), f"{part} = {write}(value);", "}"]
            return
        self.begin.append(f"{kind} {acc} = {identity};")
        self.body.append(f"{acc} = {combine}({acc}, {result});")
        if self._kernel.is_serial:
            self.finish.append(f"{part} = {write}({acc});")
        else:
            group = {"GROUP": self._kernel.group, "shared": f"shared_{kind}", "PART": part, "STORE": write}
            self.finish.append(inlined("fold_items", **group))
