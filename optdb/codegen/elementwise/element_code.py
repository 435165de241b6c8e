"""The code of kernels that go over the elements of arrays.

``alike`` is for arrays that lie alike in memory, ``strided`` for any strides: their work items
take pieces of the elements, one after the other. ``lanes`` is for processors: the elements of a
row are taken in vectors, whatever their strides. Two are for other devices: in ``quads`` an item
takes four neighbours of arrays that lie alike, in ``narrow`` an item takes an element of arrays
of any strides, whose place is worked out in 32 bits; where those are not enough, ``strided`` is
there by the name of ``wide``.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from optdb.codegen.elementwise.operand import QUAD, Operand
from optdb.codegen.kernels import ctype

if TYPE_CHECKING:
    from optdb.runtime.device_profiles import DeviceKind

#: How many elements a processor computes at once.
WIDTH = 16


@dataclass(frozen=True)
class ElementCode:
    """What kernels are made of.

    Parameters
    ----------
    inputs, outputs : tuple of Operand
        The arrays.
    statements, once : str
        What sets an element of each output, or a vector of them; and what comes ahead of all elements.
    ndim : int
        Of the arrays.
    name : str
        What the names of the kernels begin with.
    numbers : tuple of (str, str)
        Name and dtype of numbers that the statements use besides.
    """

    inputs: tuple[Operand, ...]
    outputs: tuple[Operand, ...]
    statements: str
    once: str
    ndim: int
    name: str
    numbers: tuple[tuple[str, str], ...]

    @property
    def operands(self) -> list[Operand]:
        """Inputs and outputs."""
        return [*self.inputs, *self.outputs]

    @property
    def many(self) -> list[Operand]:
        """The inputs that have more than one element."""
        return [x for x in self.inputs if not x.single]

    @property
    def stepping(self) -> list[Operand]:
        """What has a place of its own for each element."""
        return [*self.many, *self.outputs]

    @property
    def ahead(self) -> str:
        """What comes ahead of all elements: what is read once, and what is computed of that."""
        return _lines([*(x.read("0") for x in self.inputs if x.single), self.once])

    def kernels(self, device_kind: DeviceKind | None) -> str:
        """Return the kernels for devices of a kind, or for all."""
        if device_kind == "cpu":
            return self._lanes()
        if device_kind is None:
            return self._strided("strided") + self._alike()
        return self._strided("wide") + self._narrow() + self._quads()

    def _alike(self) -> str:
        return f"""
OUTLINED_KERNEL void {self.name}_alike({", ".join([*self._common, *(x.param for x in self.operands)])})
{{
const ga_size begin = get_global_id(0) * chunk;
const ga_size end = min(begin + chunk, n);
if (begin >= end)
    return;
{self.ahead}
for (ga_size i = begin; i < end; ++i) {{
{_lines(x.read("i") for x in self.many)}
{_lines(x.declare() for x in self.outputs)}
{self.statements}
{_lines(x.write("i") for x in self.outputs)}
}}
}}
"""

    def _strided(self, kind: str) -> str:
        last = self.ndim - 1
        return f"""
OUTLINED_KERNEL void {self.name}_{kind}({self._params()})
{{
ga_size i = get_global_id(0) * chunk;
const ga_size end = min(i + chunk, n);
if (i >= end)
    return;
{self.ahead}
while (i < end) {{
{self._place_of_row("ga_size")}
const ga_size stop = min(end, i + (len{last} - at{last}));
for (; i < stop; ++i) {{
{_lines(x.read(f"{x.name}_p") for x in self.many)}
{_lines(x.declare() for x in self.outputs)}
{self.statements}
{_lines(x.write(f"{x.name}_p") for x in self.outputs)}
{_lines(f"{x.name}_p += {x.name}_s{last};" for x in self.stepping)}
}}
}}
}}
"""

    def _lanes(self) -> str:
        last = self.ndim - 1

        def read(x: Operand) -> str:
            value = f"{x.reader(self.name)}({x.name}_at + {x.name}_p, {x.name}_s{last}, count)"
            return f"const {x.computed}{WIDTH} {x.name} = {value};"

        def write(x: Operand) -> str:
            return f"{x.writer(self.name)}({x.name}, {x.name}_at + {x.name}_p, {x.name}_s{last}, count);"

        functions = dict.fromkeys([*(x.lane_reader(self.name, WIDTH) for x in self.many)])
        functions |= dict.fromkeys(x.lane_writer(self.name, WIDTH) for x in self.outputs)
        return f"""
{_lines(functions)}
OUTLINED_KERNEL void {self.name}_lanes({self._params()})
{{
ga_size i = get_global_id(0) * chunk;
const ga_size end = min(i + chunk, n);
if (i >= end)
    return;
{self.ahead}
while (i < end) {{
{self._place_of_row("ga_size")}
const ga_size stop = min(end, i + (len{last} - at{last}));
for (; i < stop; i += {WIDTH}) {{
const int count = (int)min((ga_size){WIDTH}, stop - i);
{_lines(map(read, self.many))}
{_lines(f"{x.computed}{WIDTH} {x.name};" for x in self.outputs)}
{self.statements}
{_lines(map(write, self.outputs))}
{_lines(f"{x.name}_p += {WIDTH} * {x.name}_s{last};" for x in self.stepping)}
}}
i = stop;
}}
}}
"""

    def _quads(self) -> str:
        return f"""
KERNEL void {self.name}_quads({", ".join([*self._common, *(x.param for x in self.operands)])})
{{
const ga_size i = get_global_id(0) * {QUAD};
if (i >= n)
    return;
const int count = (int)min((ga_size){QUAD}, n - i);
{self.ahead}
{_lines(x.read_quad() for x in self.many)}
{_lines(x.declare_quad() for x in self.outputs)}
#pragma unroll
for (int l = 0; l < {QUAD}; ++l) {{
{_lines(x.take_of_quad() for x in self.many)}
{_lines(x.declare() for x in self.outputs)}
{self.statements}
{_lines(x.put_into_quad() for x in self.outputs)}
}}
{_lines(x.write_quad() for x in self.outputs)}
}}
"""

    def _narrow(self) -> str:
        return f"""
KERNEL void {self.name}_narrow({self._params("ga_uint", "ga_int")})
{{
const uint i = (uint)get_global_id(0);
if (i >= n)
    return;
{self.ahead}
{self._place_of_row("uint", "int")}
{_lines(x.read(f"{x.name}_p") for x in self.many)}
{_lines(x.declare() for x in self.outputs)}
{self.statements}
{_lines(x.write(f"{x.name}_p") for x in self.outputs)}
}}
"""

    @property
    def _common(self) -> list[str]:
        """What the kernels take first, in the code."""
        return ["ga_size n", "ga_size chunk", *[f"{ctype(dtype)} {name}" for name, dtype in self.numbers]]

    def _params(self, size: str = "ga_size", step: str = "ga_ssize") -> str:
        dims = range(self.ndim)
        lengths = [f"{size} len{d}" for d in dims]
        steps = [f"{step} {x.name}_s{d}" for x in self.stepping for d in dims]
        return ", ".join([*self._common, *lengths, *(x.param for x in self.operands), *steps])

    def _place_of_row(self, size: str, step: str = "ga_ssize") -> str:
        dims = range(self.ndim)
        outer = [f"const {size} at{d} = rest % len{d}; rest /= len{d};" for d in reversed(dims) if d]
        outer.append("const " + size + " at0 = rest;")
        places = [
            f"{step} {x.name}_p = {' + '.join(f'({step})at{d} * {x.name}_s{d}' for d in dims)};" for x in self.stepping
        ]
        return _lines([f"{size} rest = i;", *outer, *places])


def _lines(lines: Iterable[str]) -> str:
    return "\n".join(lines)
