"""The code of reductions: kernels that read elements by way of a scalar op, and fold them.

``along`` is for elements that lie side by side where they are folded together, ``across`` for
those of which the neighbours go into neighbouring outputs. A processor folds vectors of
elements: in ``along`` into one vector, whose lanes are folded at the end, in ``across`` into a
strip of outputs. Other devices have a team of work items for each output in ``along``, which
meet in local memory, and one work item for each output in ``across``.

Much that goes into one output is folded in parts. They are left in the accumulator's dtype,
one part behind the other, and folded by the kernels of another `ReductionCode`. What is done
with a result that is ready is in :mod:`optdb.opencl.ops.reduction_tail`.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from optdb.codegen.elementwise import WIDTH, Operand
from optdb.codegen.scalars.helpers import Helpers
from optdb.codegen.scalars.types import c_type, convert
from optdb.opencl.kernels import Kernel
from optdb.opencl.ops.reduction_tail import Tail
from optdb.opencl.scalars.code import ScalarCode, scalar_code

_ROUND_EACH_STEP = "#pragma OPENCL FP_CONTRACT OFF"

#: So many outputs side by side are folded by one work item of a processor.
STRIP = 1024
#: So many rows at a time, so that a strip is loaded and stored less often.
ROWS = 4
#: So many elements another device's work item folds side by side, so that it need not wait for each.
SEVERAL = 16


@dataclass(frozen=True)
class ReductionCode:
    """What is folded, from which arrays, by which dtype to which.

    Parameters
    ----------
    op : ScalarOp
        What makes one element of two.
    pre : ScalarOp
        What makes an element of those of the arrays.
    dtypes : tuple of str
        Of the arrays.
    single : tuple of bool
        For each of them, whether it is one element.
    dtype, acc_dtype : str
        Of the elements, and of what is computed in between.
    tail : Tail
        What is done with the results.
    identity : str
        What changes nothing, in OpenCL C.
    kept, folded : int
        How many axes stay, and how many go; 1 at least.
    vectors : bool
        Whether the code is of explicit vectors, and so for no complex numbers.
    group : int
        How many work items of the other code are a group.
    name : str
        What the names of the kernels begin with.
    """

    op: Any
    pre: Any
    dtypes: tuple[str, ...]
    single: tuple[bool, ...]
    dtype: str
    acc_dtype: str
    tail: Tail
    identity: str
    kept: int
    folded: int
    vectors: bool
    group: int
    name: str = "fold"

    @property
    def inputs(self) -> list[Operand]:
        """The arrays."""
        return [Operand.of(f"i{i}", dtype, one) for i, (dtype, one) in enumerate(zip(self.dtypes, self.single))]

    @property
    def many(self) -> list[Operand]:
        """The arrays of more than one element."""
        return [x for x in self.inputs if not x.single]

    def kernels(self) -> list[Kernel]:
        """Return both kernels; they are of one code."""
        return list(_kernels(self))

    def _write_kernels(self) -> tuple[Kernel, ...]:
        names = [x.name for x in self.inputs]
        uniform = [x.name for x in self.inputs if x.single]
        helpers = Helpers(self.name)
        pre = scalar_code(self.pre, self.dtypes, names, ["element"], uniform, self._width, helpers)
        scalar_code(self.op, [self.acc_dtype] * 2, ["acc", "x"], ["acc"], width=self._width, helpers=helpers)
        post = self.tail.code(helpers)
        flags = Kernel.get_flags(*sorted({*pre.dtypes, *post.dtypes, self.acc_dtype}))
        both = (self._along, self._across) if self._width > 1 else (self._team, self._item)
        text = "\n".join([_ROUND_EACH_STEP, helpers.source, *self._readers(), *[kernel(pre) for kernel in both]])
        return tuple(Kernel.all_of(text, flags))

    @property
    def _width(self) -> int:
        return WIDTH if self.vectors else 1

    @property
    def _acc(self) -> str:
        return c_type(self.acc_dtype)

    def _readers(self) -> list[str]:
        if self._width == 1:
            return []
        return list(dict.fromkeys(x.lane_reader(self.name) for x in self.many))

    def _combine(self, acc: str, x: str, width: int = 1) -> str:
        """Return statements that take `x` into `acc`."""
        names = [acc, x], [acc]
        code = scalar_code(self.op, [self.acc_dtype] * 2, *names, width=width, helpers=Helpers(self.name))
        return f"{{ {code.statements} }}"

    def _params(self) -> str:
        kept, folded = range(self.kept), range(self.folded)
        lengths = [f"ga_size k{d}" for d in kept] + [f"ga_size r{d}" for d in folded]
        steps = [
            f"ga_ssize {x.name}_{axis}{d}"
            for x in self.many
            for axis, dims in (("k", kept), ("r", folded))
            for d in dims
        ]
        first = ["ga_size n", "ga_size each", "ga_size m", "ga_size parts", "ga_size part"]
        return ", ".join([*first, *lengths, *[x.param for x in self.inputs], *steps, *self.tail.params(self.kept)])

    def _ahead(self, pre: ScalarCode) -> str:
        """What comes first: what is read once, and what is computed of that."""
        return _lines([*[x.read("0") for x in self.inputs if x.single], pre.once])

    def _place_of_output(self, dims: int) -> str:
        """Work out where output `o` is, and what goes into it; axes from `dims` on are left out."""
        at = [f"const ga_size at{d} = rest % k{d}; rest /= k{d};" for d in reversed(range(dims))]
        arrays = [(f"{x.name}_base", f"{x.name}_k") for x in self.many]
        arrays += [(f"{x.name}_place", f"{x.name}_k") for x in self.tail.stepping]
        places = [
            f"ga_ssize {base} = {' + '.join([*(f'(ga_ssize)at{d} * {step}{d}' for d in range(dims)), '0'])};"
            for base, step in arrays
        ]
        return _lines(["ga_size rest = o;", *at, *places])

    def _place_in_fold(self) -> str:
        """Work out where the row of element `i` begins; the last axis is left out."""
        last = self.folded - 1
        places = [f"ga_ssize {x.name}_p = {x.name}_base + (ga_ssize)column * {x.name}_r{last};" for x in self.many]
        lines = [f"const ga_size column = i % r{last};", f"ga_size row = i / r{last};", *places]
        for d in reversed(range(last)):
            lines += [f"{x.name}_p += (ga_ssize)(row % r{d}) * {x.name}_r{d};" for x in self.many]
            lines.append(f"row /= r{d};")
        return _lines(lines)

    def _element(self, pre: ScalarCode, reads: Iterable[str]) -> str:
        """Read and compute `x`, an element or a vector of them, in the accumulator's type."""
        wide = self._width if self._width > 1 else ""
        make = convert("element", self.dtype, self.acc_dtype, self._width)
        return _lines(
            [*reads, f"{c_type(self.dtype)}{wide} element;", pre.statements, f"{self._acc}{wide} x = {make};"]
        )

    def _write(self, value: str, column: str | None = None) -> str:
        """Write what is made of a result, or a part; `column` says how far along the last axis, if not at the place."""

        def place(x: Operand) -> str:
            further = "" if column is None else f" + (ga_ssize)({column}) * {x.name}_k{self.kept - 1}"
            return f"{x.name}_place{further}"

        return self.tail.write(place, value, self.acc_dtype, Helpers(self.name))

    def _lane_reads(self, step: str) -> list[str]:
        return [
            f"const {x.computed}{WIDTH} {x.name} = "
            f"{x.reader(self.name)}({x.name}_at + {x.name}_p, {x.name}_{step}, count);"
            for x in self.many
        ]

    def _along(self, pre: ScalarCode) -> str:
        last = self.folded - 1
        return f"""
OUTLINED_KERNEL void {self.name}_along({self._params()})
{{
{self._ahead(pre)}
const ga_size mine = get_global_id(0) % parts;
const ga_size begin = mine * part, end = min(begin + part, m);
ga_size o = get_global_id(0) / parts * each;
const ga_size o_end = min(o + each, n);
for (; o < o_end; ++o) {{
{self._place_of_output(self.kept)}
{self._acc}{WIDTH} acc = ({self._acc}{WIDTH})({self.identity});
ga_size i = begin;
while (i < end) {{
{self._place_in_fold()}
const ga_size stop = min(end, i + (r{last} - column));
for (; i < stop; i += {WIDTH}) {{
const int count = (int)min((ga_size){WIDTH}, stop - i);
{self._element(pre, self._lane_reads(f"r{last}"))}
if (count < {WIDTH}) {{
    union {{ {self._acc}{WIDTH} v; {self._acc} s[{WIDTH}]; }} rest_of_row;
    rest_of_row.v = x;
    for (int l = count; l < {WIDTH}; ++l)
        rest_of_row.s[l] = {self.identity};
    x = rest_of_row.v;
}}
{self._combine("acc", "x", WIDTH)}
{_lines(f"{x.name}_p += {WIDTH} * {x.name}_r{last};" for x in self.many)}
}}
i = stop;
}}
union {{ {self._acc}{WIDTH} v; {self._acc} s[{WIDTH}]; }} lanes;
lanes.v = acc;
{self._acc} whole = lanes.s[0];
for (int l = 1; l < {WIDTH}; ++l) {{
    const {self._acc} other = lanes.s[l];
    {self._combine("whole", "other")}
}}
{self._write("whole")}
}}
}}
"""

    def _across(self, pre: ScalarCode) -> str:
        last, folding = self.kept - 1, self.folded - 1
        column = [f"{x.name}_base += (ga_ssize)from * {x.name}_k{last};" for x in self.many]
        reads = [
            f"const {x.computed}{WIDTH} {x.name} = {x.reader(self.name)}({x.name}_at + {x.name}_p + "
            f"c * {x.name}_k{last} + r * {x.name}_r{folding}, {x.name}_k{last}, count);"
            for x in self.many
        ]
        return f"""
OUTLINED_KERNEL void {self.name}_across({self._params()})
{{
{self._ahead(pre)}
const ga_size mine = get_global_id(0) % parts;
const ga_size begin = mine * part, end = min(begin + part, m);
const ga_size strips = (k{last} + each - 1) / each;
const ga_size strip = get_global_id(0) / parts;
const ga_size from = strip % strips * each, o = strip / strips;
const int width = (int)min(each, k{last} - from);
{self._place_of_output(last)}
{_lines(column)}
{self._acc} strip_of[{STRIP}];
for (int c = 0; c < width; c += {WIDTH})
    vstore{WIDTH}(({self._acc}{WIDTH})({self.identity}), 0, strip_of + c);
ga_size i = begin;
while (i < end) {{
{self._place_in_fold()}
const ga_size stop = min(end, i + (r{folding} - column));
for (; i < stop; i += {ROWS}) {{
const int rows = (int)min((ga_size){ROWS}, stop - i);
for (int c = 0; c < width; c += {WIDTH}) {{
const int count = min({WIDTH}, width - c);
{self._acc}{WIDTH} acc = vload{WIDTH}(0, strip_of + c);
for (int r = 0; r < rows; ++r) {{
{self._element(pre, reads)}
{self._combine("acc", "x", WIDTH)}
}}
vstore{WIDTH}(acc, 0, strip_of + c);
}}
{_lines(f"{x.name}_p += {ROWS} * {x.name}_r{folding};" for x in self.many)}
}}
i = stop;
}}
for (int c = 0; c < width; ++c) {{
{self._write("strip_of[c]", "from + c")}
}}
}}
"""

    def _fold_items(self, pre: ScalarCode, first: str, step: str) -> str:
        """Fold the elements from `first` on, every `step`-th, as one work item does it."""
        last = self.folded - 1
        reads = [x.read(f"{x.name}_p") for x in self.many]

        def at(place: str) -> str:
            return _lines(
                f"const ga_ssize {x.name}_p = {x.name}_base + (ga_ssize)({place}) * {x.name}_r{last};"
                for x in self.many
            )

        return f"""{self._acc} acc = {self.identity};
ga_size i = {first};
if (m == r{last}) {{
{self._acc} several[{SEVERAL}];
#pragma unroll
for (int u = 0; u < {SEVERAL}; ++u)
    several[u] = {self.identity};
for (; i + {SEVERAL - 1} * {step} < end; i += {SEVERAL} * {step}) {{
#pragma unroll
for (int u = 0; u < {SEVERAL}; ++u) {{
{at(f"i + u * {step}")}
{self._element(pre, reads)}
{self._combine("several[u]", "x")}
}}
}}
for (; i < end; i += {step}) {{
{at("i")}
{self._element(pre, reads)}
{self._combine("acc", "x")}
}}
#pragma unroll
for (int u = 0; u < {SEVERAL}; ++u) {{
const {self._acc} x = several[u];
{self._combine("acc", "x")}
}}
}} else {{
for (; i < end; i += {step}) {{
{self._place_in_fold()}
{self._element(pre, reads)}
{self._combine("acc", "x")}
}}
}}"""

    def _team(self, pre: ScalarCode) -> str:
        return f"""
KERNEL void {self.name}_along({self._params()})
{{
LOCAL_MEM {self._acc} shared[{self.group}];
const uint team = (uint)each, lane = (uint)LID_0 % team;
const ga_size job = GID_0 * (LDIM_0 / team) + LID_0 / team;
const ga_size mine = job % parts, o = job / parts;
if (o < n) {{
{self._ahead(pre)}
const ga_size begin = mine * part, end = min(begin + part, m);
{self._place_of_output(self.kept)}
{self._fold_items(pre, "begin + lane", "team")}
shared[LID_0] = acc;
}}
for (uint half_of = team / 2; half_of > 0; half_of /= 2) {{
    local_barrier();
    if (lane < half_of && o < n) {{
        {self._acc} acc = shared[LID_0];
        const {self._acc} other = shared[LID_0 + half_of];
        {self._combine("acc", "other")}
        shared[LID_0] = acc;
    }}
}}
if (lane == 0 && o < n) {{
{self._place_of_output(self.kept)}
{self._write("shared[LID_0]")}
}}
}}
"""

    def _item(self, pre: ScalarCode) -> str:
        return f"""
KERNEL void {self.name}_across({self._params()})
{{
const ga_size o = get_global_id(0) % n, mine = get_global_id(0) / n;
if (mine >= parts)
    return;
{self._ahead(pre)}
const ga_size begin = mine * part, end = min(begin + part, m);
{self._place_of_output(self.kept)}
{self._fold_items(pre, "begin", "1")}
{self._write("acc")}
}}
"""


@functools.lru_cache(maxsize=512)
def _kernels(code: ReductionCode) -> tuple[Kernel, ...]:
    """Return the kernels of a code: many nodes of a graph have the same."""
    return code._write_kernels()


def _lines(lines: Iterable[str]) -> str:
    return "\n".join(lines)
