"""An array as the code of a kernel sees it: how it is declared, read and written."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from optdb.codegen.fp16 import load_w, write_w
from optdb.codegen.kernels import ctype
from optdb.codegen.scalars.types import C_TYPES

_READER = """
static inline {computed}{width} {name}(const GLOBAL_MEM {stored} *p, ga_ssize step, int count)
{{
    if (step == 0)
        return ({computed}{width})({load}(*p));
    if (step == 1 && count == {width})
        return {whole};
    union {{ {computed}{width} v; {computed} s[{width}]; }} lanes;
    lanes.v = ({computed}{width})(0);
    for (int l = 0; l < count; ++l)
        lanes.s[l] = {load}(p[l * step]);
    return lanes.v;
}}
"""

_WRITER = """
static inline void {name}({computed}{width} value, GLOBAL_MEM {stored} *p, ga_ssize step, int count)
{{
    if (step == 1 && count == {width}) {{
        {whole};
        return;
    }}
    union {{ {computed}{width} v; {computed} s[{width}]; }} lanes;
    lanes.v = value;
    for (int l = 0; l < count; ++l)
        p[l * step] = {store}(lanes.s[l]);
}}
"""


#: So many neighbours an item takes at once.
QUAD = 4

#: What holds the bits of four neighbours of so many bytes each.
_QUADS = {1: "uchar4", 2: "ushort4", 4: "uint4", 8: "ulong4", 16: "ulong8"}


@dataclass(frozen=True)
class Operand:
    """An array that a kernel reads or writes.

    Parameters
    ----------
    name : str
        What an element is called in the code.
    stored, computed : str
        The C types of an element in memory, and in between.
    load, store : str
        Functions from the one to the other, and back; empty if they are the same.
    single : bool
        Whether there is but one element, which is read once.
    size : int
        How many bytes an element takes, where that is known.
    """

    name: str
    stored: str
    computed: str
    load: str = ""
    store: str = ""
    single: bool = False
    size: int = 0

    @classmethod
    def of(cls, name: str, dtype: str, single: bool = False) -> Operand:
        """Return the operand for an array of some dtype."""
        return cls(name, ctype(dtype), C_TYPES[dtype], load_w(dtype), write_w(dtype), single, np.dtype(dtype).itemsize)

    @property
    def param(self) -> str:
        """Its parameter in the code: a pointer to its first element."""
        return f"ARRAY {self.stored} *{self.name}_at"

    def read(self, index: str) -> str:
        """Return a statement that reads one element."""
        return f"const {self.computed} {self.name} = {self.load}({self.name}_at[{index}]);"

    def declare(self) -> str:
        """Return a statement that declares an element that is to be written."""
        return f"{self.computed} {self.name};"

    def write(self, index: str) -> str:
        """Return a statement that writes one element."""
        return f"{self.name}_at[{index}] = {self.store}({self.name});"

    def declare_quad(self) -> str:
        """Return a statement that declares four neighbours."""
        return f"union {{ {_QUADS[self.size]} v; {self.stored} s[{QUAD}]; }} {self.name}_quad;"

    def read_quad(self) -> str:
        """Return statements that read four neighbours from element `i` on, or `count` of them."""
        quad, raw = f"{self.name}_quad", _QUADS[self.size]
        return f"""{self.declare_quad()}
if (count == {QUAD})
    {quad}.v = *(const GLOBAL_MEM {raw} *)({self.name}_at + i);
else
    for (int l = 0; l < {QUAD}; ++l)
        {quad}.s[l] = {self.name}_at[i + min(l, count - 1)];"""

    def take_of_quad(self) -> str:
        """Return a statement that takes neighbour `l`."""
        return f"const {self.computed} {self.name} = {self.load}({self.name}_quad.s[l]);"

    def put_into_quad(self) -> str:
        """Return a statement that sets neighbour `l`."""
        return f"{self.name}_quad.s[l] = {self.store}({self.name});"

    def write_quad(self) -> str:
        """Return statements that write four neighbours, or `count` of them."""
        quad, raw = f"{self.name}_quad", _QUADS[self.size]
        return f"""if (count == {QUAD})
    *(GLOBAL_MEM {raw} *)({self.name}_at + i) = {quad}.v;
else
    for (int l = 0; l < count; ++l)
        {self.name}_at[i + l] = {quad}.s[l];"""

    def reader(self, prefix: str) -> str:
        """Return the name of the function that reads a vector of them, in the code of some kernels."""
        return f"{prefix}_read_{self.stored}"

    def writer(self, prefix: str) -> str:
        """Return the name of the function that writes a vector of them, in the code of some kernels."""
        return f"{prefix}_write_{self.stored}"

    def lane_reader(self, prefix: str, width: int) -> str:
        """Return the function that reads up to `width` elements, one `step` behind the other."""
        half = f"vload_half{width}(0, (const GLOBAL_MEM half *)p)"
        return self._function(_READER, self.reader(prefix), width, half if self.load else f"vload{width}(0, p)")

    def lane_writer(self, prefix: str, width: int) -> str:
        """Return the function that writes up to `width` elements, one `step` behind the other."""
        half = f"vstore_half{width}_rte(value, 0, (GLOBAL_MEM half *)p)"
        return self._function(
            _WRITER, self.writer(prefix), width, half if self.store else f"vstore{width}(value, 0, p)"
        )

    def _function(self, template: str, name: str, width: int, whole: str) -> str:
        return template.format(
            name=name,
            stored=self.stored,
            computed=self.computed,
            width=width,
            load=self.load,
            store=self.store,
            whole=whole,
        )
