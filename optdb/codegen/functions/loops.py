"""The code of fused loops: kernels that compute any number of tensors in one pass over a domain.

The body of a kernel is a program that a `Lowering` has written; its results go to *targets*. An :class:`ElementStore`
writes them into a buffer, a :class:`Fold` accumulates them over the whole domain, a :class:`ColumnSum` adds rows of a
matrix times the result, a :class:`Scatter` adds them at computed places. Each work item, or group of these, accumulates
into a part of its own, so that no item waits for another one; whatever reads the result adds up the parts.

A processor computes vectors of points, other devices a point for each item.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

from optdb.codegen.elementwise import WIDTH, Operand
from optdb.codegen.functions.indices import Index
from optdb.codegen.functions.lowering import Load, LoopIndex, Lowering, RowProduct
from optdb.codegen.functions.lowering import Operand as Result
from optdb.codegen.functions.stored import Buffer
from optdb.codegen.kernels import Kernel, ctype
from optdb.codegen.reductions.folds import identity_of
from optdb.codegen.scalars.code import computed_dtypes, scalar_code
from optdb.codegen.scalars.helpers import Helpers
from optdb.codegen.scalars.program import Program, Scalar
from optdb.codegen.scalars.types import c_type, is_complex
from optdb.codegen.source import ROUND_EACH_STEP, filled, functions, joined, write_w
from optdb.runtime.device_profiles import DeviceProfile

#: Work items of a group, on devices that run groups.
GROUP = 256
#: Work items of a processor for each of its units, and the fewest points of one.
ITEMS_PER_UNIT = 1
LEAST_POINTS = 2048
#: What a device needs to add to numbers of 8 bytes that others add to.
WIDE_ATOMICS = "cl_khr_int64_base_atomics"
_CODE = functions("functions/loops.cl")


@dataclass(frozen=True)
class ElementStore:
    """A result that is written into a buffer, at an affine index."""

    result: Result
    buffer: Buffer
    index: Index


@dataclass(frozen=True)
class ScatterStore:
    """A result that is written into a buffer, at a computed index."""

    result: Result
    buffer: Buffer
    index: Result


@dataclass(frozen=True)
class Fold:
    """A result that is folded over the domain. The parts begin at an index of a buffer, one after the other."""

    result: Result
    fold: str
    parts: Buffer
    number: int


@dataclass(frozen=True)
class ColumnSum:
    """A result by which rows of a matrix are multiplied, before all rows are added up."""

    result: Result
    matrix: Buffer
    offset: int
    row_stride: int
    length: int
    parts: Buffer


@dataclass(frozen=True)
class Scatter:
    """A result that is added to the element of a part that a computed index names, from an offset on."""

    result: Result
    index: Result
    offset: int
    size: int
    parts: Buffer
    #: How many parts the groups of a device share, which are zeros before; 0 if each item has a part of its own.
    part_count: int = 0


Target = ElementStore | ScatterStore | Fold | ColumnSum | Scatter


def collapsed(domain: Sequence[int], indices: Iterable[Index]) -> tuple[tuple[int, ...], dict[int, tuple[int, int]]]:
    """Return a domain of fewest axes for some indices, and for each old axis the new one and the factor that it has.

    Axes of length 1 are dropped, and have none.
    """
    indices = list(indices)
    groups: list[list[int]] = []
    for axis, length in enumerate(domain):
        if length == 1:
            continue
        if groups and all(index.factor(groups[-1][-1]) == index.factor(axis) * length for index in indices):
            groups[-1].append(axis)
        else:
            groups.append([axis])
    return tuple(math.prod(domain[axis] for axis in group) for group in groups), {
        axis: (number, group[-1]) for number, group in enumerate(groups) for axis in group
    }


@dataclass(eq=False)
class LoopKernel:
    """A kernel that computes targets over the domain of a lowering."""

    lowering: Lowering
    targets: Sequence[Target]
    profile: DeviceProfile
    #: The buffers that the kernel takes, in the order of its parameters.
    buffers: list[Buffer] = field(default_factory=list)

    def __post_init__(self) -> None:
        lowering = self.lowering
        self.program = lowering.build([x for target in self.targets for x in _results_of(target)])
        sources = lowering.sources
        affine = [source.index for source in sources if isinstance(source, Load | LoopIndex)]
        affine += [target.index for target in self.targets if isinstance(target, ElementStore)]
        #: The loops that are left, at least one; and the old axes that name them.
        self.domain, self._axes = collapsed(lowering.domain, affine)
        self.is_scalar = not self.domain
        self.points = math.prod(self.domain)
        complex_numbers = any(map(is_complex, computed_dtypes(self.program)))
        self._serial = self.profile.runs_items_serially
        self._group = min(GROUP, self.profile.max_local_size)
        is_lanes = self.profile.needs_explicit_vectors and not complex_numbers and not self.is_scalar
        self.width = WIDTH if is_lanes and self._serial else 1

    def __str__(self) -> str:
        kinds = Counter(type(target).__name__ for target in self.targets)
        targets = ", ".join(kind if n == 1 else f"{n} {kind}" for kind, n in kinds.items())
        domain = " x ".join(map(str, self.domain)) or "1"
        return f"a loop over {domain} points, {len(self.program.steps)} scalars a point: {targets}"

    @property
    def accumulates(self) -> bool:
        """Whether items have parts of their own."""
        return any(isinstance(target, Fold | ColumnSum | Scatter) for target in self.targets)

    def kernel(self) -> Kernel:
        """Return the kernel, whose parameters are the number of points, the chunk, the number of parts, and buffers."""
        self.buffers.clear()
        helpers = Helpers("loop")
        names = self._names()
        width = self.width
        outputs = [f"r{number}" for number in range(len(self.program.results))]
        uniform = [name for name, source in zip(names, self.lowering.sources) if self._is_uniform(source)]
        code = scalar_code(
            self.program, names, outputs, uniform, width, helpers, self.profile.quirks.wrong_vector_functions
        )
        steps, once = code.statements, [*self._uniform_loads(names), code.once]
        reads = joined([*self._loads(names), *map(self._declared, outputs, self.program.out_dtypes), steps])
        aliases = [
            f"const GLOBAL_MEM {ctype(buffer.dtype)} *table{number}_at = {self._name(buffer)}_at;"
            for number, buffer in enumerate(self.lowering.tables)
        ]
        begin, body, finish = self._of_targets(outputs)
        readers = dict.fromkeys(self._functions(names))
        last = len(self.domain) - 1
        words = {
            "ARRAYS": ", ".join(f"ARRAY {ctype(buffer.dtype)} *{self._name(buffer)}_at" for buffer in self.buffers),
            "ONCE": joined([*aliases, *once]),
            "BEGIN": joined(begin),
            "OFFSETS": joined(self._offsets(names)),
            "ROW": "n" if last <= 0 else f"{self.domain[-1]}UL",
            "BODY": joined([reads, *body]),
            "NEXT": joined(self._advances(names)),
            "FINISH": joined(finish),
            "WIDTH": width,
            "SHARED": joined(self._shared()),
            "chunked": "loop",
            "strided": "loop",
        }
        template = _CODE["chunked" if self._serial else "strided"]
        source = "".join([ROUND_EACH_STEP, helpers.source, *readers, filled(template, **words)])
        (kernel,) = Kernel.all_of(source, Kernel.get_flags(*sorted({*code.dtypes, *(b.dtype for b in self.buffers)})))
        return kernel

    def _name(self, buffer: Buffer) -> str:
        if buffer not in self.buffers:
            self.buffers.append(buffer)
        return f"a{self.buffers.index(buffer)}"

    def _names(self) -> list[str]:
        return [f"i{number}" for number in range(len(self.lowering.sources))]

    def _is_uniform(self, source: object) -> bool:
        if isinstance(source, RowProduct):
            return False
        return self.is_scalar or (isinstance(source, Load) and source.index.is_const)

    def _factors(self, index: Index) -> list[int]:
        """Return the factors of the loops that are left."""
        factors = [0] * len(self.domain)
        for axis, factor in index.terms:
            if axis in self._axes:
                number, last = self._axes[axis]
                if axis == last:
                    factors[number] = factor
        return factors

    def _uniform_loads(self, names: Sequence[str]) -> list[str]:
        lines = []
        for name, source in zip(names, self.lowering.sources):
            if isinstance(source, Load) and self._is_uniform(source):
                operand = Operand.of(name, source.buffer.dtype)
                at = f"{self._name(source.buffer)}_at[{source.index.const}]"
                lines.append(f"const {operand.computed} {name} = {operand.load}({at});")
            elif self._is_uniform(source):
                lines.append(f"const long {name} = {source.index.const};")
        return lines

    def _strided_indices(self, names: Sequence[str]) -> list[tuple[str, Index]]:
        """Return the offsets that vary: of loads, stores and loop indices."""
        indices = [
            (name, source.index)
            for name, source in zip(names, self.lowering.sources)
            if isinstance(source, Load | LoopIndex) and not self._is_uniform(source)
        ]
        stores = [
            (f"s{number}", target.index)
            for number, target in enumerate(self.targets)
            if isinstance(target, ElementStore)
        ]
        return [*indices, *stores]

    def _offsets(self, names: Sequence[str]) -> list[str]:
        last = len(self.domain) - 1
        if last < 0:
            return ["const ga_size column = 0;"]
        lines = [f"const ga_size column = {f'i % {self.domain[-1]}UL' if last else 'i'};"]
        if last:
            lines.append(f"ga_size row = i / {self.domain[-1]}UL;")
            for axis in reversed(range(last)):
                lines.append(f"const ga_ssize x{axis} = (ga_ssize)(row{f' % {self.domain[axis]}UL' if axis else ''});")
                if axis:
                    lines.append(f"row /= {self.domain[axis]}UL;")
        for name, index in self._strided_indices(names):
            *outer, inner = self._factors(index)
            terms = [f"{index.const}L", *[f"{by}L * x{axis}" for axis, by in enumerate(outer) if by]]
            if inner:
                terms.append(f"{inner}L * (ga_ssize)column")
            lines.append(f"ga_ssize {name}_p = {' + '.join(terms)};")
        return lines

    def _advances(self, names: Sequence[str]) -> list[str]:
        if not self.domain:
            return []
        return [
            f"{name}_p += {self.width * self._factors(index)[-1]};"
            for name, index in self._strided_indices(names)
            if self._factors(index)[-1]
        ]

    def _loads(self, names: Sequence[str]) -> list[str]:
        lines = []
        for name, source in zip(names, self.lowering.sources):
            if self._is_uniform(source):
                continue
            if isinstance(source, RowProduct):
                lines += self._row_product(name, source)
                continue
            step = self._factors(source.index)[-1]
            if isinstance(source, LoopIndex):
                lanes = ", ".join(str(step * lane) for lane in range(WIDTH))
                value = f"(long{WIDTH})({name}_p) + (long{WIDTH})({lanes})" if self.width > 1 else f"{name}_p"
                lines.append(f"const {self._type('int64')} {name} = {value};")
                continue
            operand, array = Operand.of(name, source.buffer.dtype), self._name(source.buffer)
            if self.width > 1:
                value = f"{operand.reader('loop')}({array}_at + {name}_p, {step}, count)"
            else:
                value = f"{operand.load}({array}_at[{name}_p])"
            lines.append(f"const {self._type(source.buffer.dtype)} {name} = {value};")
        return lines

    def _type(self, dtype: str) -> str:
        return c_type(dtype) + (str(self.width) if self.width > 1 else "")

    def _declared(self, name: str, dtype: str) -> str:
        return f"{self._type(dtype)} {name};"

    def _row_product(self, name: str, source: RowProduct) -> list[str]:
        kind = c_type(source.matrix.dtype)
        row = f"{self._name(source.matrix)}_at + {source.offset}L + {source.row_stride}L * (ga_ssize)(i + l)"
        vector = f"{self._name(source.vector)}_at + {source.vector_offset}L"
        if self.width == 1:
            call = f"row_product_{kind}({row.replace('(i + l)', 'i')}, {vector}, {source.length}UL)"
            return [f"const {kind} {name} = {call};"]
        return [
            f"{self._type(source.matrix.dtype)} {name};",
            f"{{ union {{ {kind}{WIDTH} v; {kind} s[{WIDTH}]; }} rows; rows.v = ({kind}{WIDTH})(0);",
            "for (int l = 0; l < count; ++l)",
            f"rows.s[l] = row_product_{kind}({row}, {vector}, {source.length}UL);",
            f"{name} = rows.v; }}",
        ]

    def _functions(self, names: Sequence[str]) -> list[str]:
        """Return the functions that the code calls."""
        found = []
        for name, source in zip(names, self.lowering.sources):
            if isinstance(source, Load) and self.width > 1 and not self._is_uniform(source):
                found.append(Operand.of(name, source.buffer.dtype).lane_reader("loop"))
            if isinstance(source, RowProduct):
                found.append(self._filled("row_product", source.matrix.dtype))
        for target in self.targets:
            if isinstance(target, ElementStore) and self.width > 1:
                found.append(Operand.of("r", target.buffer.dtype).lane_writer("loop"))
            if isinstance(target, ColumnSum):
                found.append(self._filled("add_rows", target.matrix.dtype))
            if isinstance(target, Scatter) and target.part_count:
                found.append(_adding_atomically(target.parts.dtype))
        return found

    def _filled(self, name: str, dtype: str) -> str:
        kind = c_type(dtype)
        words = {"T": kind, "VECTOR": f"{kind}{WIDTH}", "WIDTH": WIDTH, "VLOAD": f"vload{WIDTH}"}
        words |= {"HALF": f"{kind}{WIDTH // 2}", "QUARTER": f"{kind}{WIDTH // 4}", "PAIR": f"{kind}{WIDTH // 8}"}
        return filled(_CODE[name], **words, VSTORE=f"vstore{WIDTH}", **{name: f"{name}_{kind}"})

    def _of_targets(self, outputs: Sequence[str]) -> tuple[list[str], list[str], list[str]]:
        """Return what comes ahead of the loop, in it and after it."""
        begin: list[str] = []
        body: list[str] = []
        finish: list[str] = []
        zeroed: set[Buffer] = set()
        added: list[tuple[str, str, str]] = []
        results = iter(outputs)
        for number, target in enumerate(self.targets):
            match target:
                case ElementStore():
                    body.append(self._store(number, target, next(results)))
                case ScatterStore():
                    result, index = next(results), next(results)
                    at = f"{self._name(target.buffer)}_at"
                    statement = f"{at}[{{1}}] = {write_w(target.buffer.dtype)}({{0}});"
                    body.append(self._each_lane([(statement, result, index)]))
                case Fold():
                    fold = self._fold(number, target, next(results))
                    for lines, more in zip((begin, body, finish), fold, strict=True):
                        lines += more
                case ColumnSum():
                    begin += self._zeroed(target.parts, target.length, zeroed)
                    row = f"{self._name(target.matrix)}_at + {target.offset}L + {target.row_stride}L * (ga_ssize)i"
                    kind, sums = c_type(target.matrix.dtype), f"{self._name(target.parts)}_mine"
                    factor = next(results) if self.width > 1 else f"({kind}{WIDTH})({next(results)})"
                    body.append(
                        f"add_rows_{kind}({sums}, {row}, {target.row_stride}L, {factor}, count, {target.length}UL);"
                    )
                case Scatter():
                    begin += self._own_part(target, zeroed)
                    result, index = next(results), next(results)
                    element = f"{self._name(target.parts)}_mine[{{1}} + {target.offset}L]"
                    if not target.part_count:
                        added.append((f"{element} += {{0}};", result, index))
                    else:
                        added.append(
                            (f"add_atomically_{c_type(target.parts.dtype)}(&{element}, {{0}});", result, index)
                        )
        if added:
            body.append(self._each_lane(added))
        return begin, body, finish

    def _own_part(self, target: Scatter, done: set[Buffer]) -> list[str]:
        """Return statements that find the part that an item adds to."""
        if not target.part_count:
            return self._zeroed(target.parts, target.size, done)
        if target.parts in done:
            return []
        done.add(target.parts)
        name = self._name(target.parts)
        part = f"(GID_0 % {target.part_count}UL) * {target.size}UL"
        return [f"GLOBAL_MEM {ctype(target.parts.dtype)} *{name}_mine = {name}_at + {part};"]

    def _zeroed(self, parts: Buffer, size: int, done: set[Buffer]) -> list[str]:
        if parts in done:
            return []
        done.add(parts)
        name = self._name(parts)
        return [
            f"GLOBAL_MEM {ctype(parts.dtype)} *{name}_mine = {name}_at + item * {size}UL;",
            f"for (ga_size c = 0; c < {size}UL; ++c) {name}_mine[c] = 0;",
        ]

    def _store(self, number: int, target: ElementStore, result: str) -> str:
        operand, array = Operand.of(result, target.buffer.dtype), self._name(target.buffer)
        if self.is_scalar:
            return f"{array}_at[{target.index.const}] = {operand.store}({result});"
        step = self._factors(target.index)[-1]
        if self.width > 1:
            return f"{operand.writer('loop')}({result}, {array}_at + s{number}_p, {step}, count);"
        return f"{array}_at[s{number}_p] = {operand.store}({result});"

    def _each_lane(self, statements: Sequence[tuple[str, str, str]]) -> str:
        """Return statements for each wanted lane; each is a text, with two results that are filled in."""
        if self.width == 1:
            return joined(statement.format(*values) for statement, *values in statements)
        dtypes = dict(zip([f"r{n}" for n in range(len(self.program.results))], self.program.out_dtypes))
        # Results that are one value, such as an index of several statements, are one variable.
        first = {result: f"r{self.program.results.index(result)}" for result in self.program.results}
        names = {f"r{n}": first[result] for n, result in enumerate(self.program.results)}
        lines = ["{"]
        for value in dict.fromkeys(names[value] for _, *values in statements for value in values):
            kind = c_type(dtypes[value])
            lines.append(f"union {{ {kind}{WIDTH} v; {kind} s[{WIDTH}]; }} {value}_lanes; {value}_lanes.v = {value};")
        each = [
            statement.format(*[f"{names[value]}_lanes.s[l]" for value in values]) for statement, *values in statements
        ]
        return joined([*lines, "for (int l = 0; l < count; ++l) {", *each, "}", "}"])

    def _fold(self, number: int, target: Fold, result: str) -> tuple[list[str], list[str], list[str]]:
        dtype = target.parts.dtype
        kind, identity = c_type(dtype), identity_of(target.fold, dtype)
        combine = Program.of(Scalar(target.fold, dtype), [dtype] * 2)
        acc, whole = f"acc{number}", f"whole{number}"
        part = f"{self._name(target.parts)}_at[{target.number}UL * items + item]"
        store = write_w(dtype)

        def combined(into: str, value: str, width: int) -> str:
            return scalar_code(combine, [into, value], [into], width=width).statements

        if self.width == 1 and self._serial:
            body = ["{", combined(acc, result, 1), "}"]
            return [f"{kind} {acc} = {identity};"], body, [f"{part} = {store}({acc});"]
        if self.width == 1:
            shared = f"shared_{kind}"
            finish = [
                f"{shared}[LID_0] = {acc};",
                "local_barrier();",
                f"for (uint half_of = {self._group // 2}; half_of > 0; half_of /= 2) {{",
                "if (LID_0 < half_of) {",
                f"{kind} {whole} = {shared}[LID_0];",
                f"const {kind} other = {shared}[LID_0 + half_of];",
                combined(whole, "other", 1),
                f"{shared}[LID_0] = {whole};",
                "}",
                "local_barrier();",
                "}",
                f"if (LID_0 == 0) {part} = {store}({shared}[0]);",
                "local_barrier();",
            ]
            return [f"{kind} {acc} = {identity};"], ["{", combined(acc, result, 1), "}"], finish
        body = [
            f"if (count < {WIDTH}) {{",
            f"union {{ {kind}{WIDTH} v; {kind} s[{WIDTH}]; }} tail; tail.v = {result};",
            f"for (int l = count; l < {WIDTH}; ++l) tail.s[l] = {identity};",
            f"{result} = tail.v;",
            "}",
            "{",
            combined(acc, result, WIDTH),
            "}",
        ]
        finish = [
            "{",
            f"union {{ {kind}{WIDTH} v; {kind} s[{WIDTH}]; }} lanes; lanes.v = {acc};",
            f"{kind} {whole} = lanes.s[0];",
            f"for (int l = 1; l < {WIDTH}; ++l) {{",
            f"const {kind} other = lanes.s[l];",
            combined(whole, "other", 1),
            "}",
            f"{part} = {store}({whole});",
            "}",
        ]
        return [f"{kind}{WIDTH} {acc} = ({kind}{WIDTH})({identity});"], body, finish

    def _shared(self) -> list[str]:
        kinds = dict.fromkeys(c_type(target.parts.dtype) for target in self.targets if isinstance(target, Fold))
        return [f"LOCAL_MEM {kind} shared_{kind}[{self._group}];" for kind in kinds]


def _adding_atomically(dtype: str) -> str:
    """Return the function that adds to a number of 4 or 8 bytes that others add to."""
    kind, is_wide = c_type(dtype), np.dtype(dtype).itemsize == 8
    bits = "ulong" if is_wide else "uint"
    words = {"T": kind, "BITS": bits, "AS_BITS": f"as_{bits}", "AS_T": f"as_{kind}"}
    words["COMPARE_EXCHANGE"] = "atom_cmpxchg" if is_wide else "atomic_cmpxchg"
    code = filled(_CODE["add_atomically"], add_atomically=f"add_atomically_{kind}", **words)
    return f"#pragma OPENCL EXTENSION {WIDE_ATOMICS} : enable\n{code}" if is_wide else code


def _results_of(target: Target) -> list[Result]:
    if isinstance(target, ScatterStore | Scatter):
        return [target.result, target.index]
    return [target.result]


@dataclass(frozen=True)
class LoopGrid:
    """How the points of a domain are shared."""

    #: How many parts there are: one for each work item of a processor, and for each group of another device.
    parts: int
    #: The points of an item of a processor.
    chunk: int
    #: The work items in all, and of a group.
    items: int
    group: int


def grid_of(points: int, profile: DeviceProfile, accumulates: bool, is_sequential: bool = False) -> LoopGrid:
    """Return how a device shares points; one item computes all in order if it `is_sequential`."""
    points = max(points, 1)
    if is_sequential:
        return LoopGrid(1, points, 1, 1)
    if profile.runs_items_serially:
        chunk = max(-(-points // (profile.compute_units * ITEMS_PER_UNIT)), LEAST_POINTS)
        chunk = -(-chunk // WIDTH) * WIDTH
        parts = -(-points // chunk)
        return LoopGrid(parts, chunk, parts, 1)
    group = min(GROUP, profile.max_local_size)
    groups = -(-points // group)
    if accumulates:
        groups = min(-(-points // (group * 4)), profile.compute_units * 8)
    return LoopGrid(groups, 1, groups * group, group)
