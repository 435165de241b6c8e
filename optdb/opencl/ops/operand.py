"""An array as the code of a kernel sees it: how it is declared, read and written."""

from __future__ import annotations

from dataclasses import dataclass

from optdb.opencl.fp16_help import load_w, write_w
from optdb.opencl.kernels import ctype
from optdb.opencl.scalars.types import C_TYPES

_READER = """
#ifndef {name}_
#define {name}_
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
#endif
"""

_WRITER = """
#ifndef {name}_
#define {name}_
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
#endif
"""


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
    """

    name: str
    stored: str
    computed: str
    load: str = ""
    store: str = ""
    single: bool = False

    @classmethod
    def of(cls, name: str, dtype: str, single: bool = False) -> Operand:
        """Return the operand for an array of some dtype."""
        return cls(name, ctype(dtype), C_TYPES[dtype], load_w(dtype), write_w(dtype), single)

    @property
    def param(self) -> str:
        """Its parameters in the code."""
        return f"GLOBAL_MEM {self.stored} *{self.name}_mem, ga_size {self.name}_off"

    @property
    def pointer(self) -> str:
        """A statement that makes the pointer to its first element."""
        place = f"(GLOBAL_MEM {self.stored} *)((GLOBAL_MEM char *){self.name}_mem + {self.name}_off)"
        return f"GLOBAL_MEM {self.stored} *{self.name}_at = {place};"

    def read(self, index: str) -> str:
        """Return a statement that reads one element."""
        return f"const {self.computed} {self.name} = {self.load}({self.name}_at[{index}]);"

    def declare(self) -> str:
        """Return a statement that declares an element that is to be written."""
        return f"{self.computed} {self.name};"

    def write(self, index: str) -> str:
        """Return a statement that writes one element."""
        return f"{self.name}_at[{index}] = {self.store}({self.name});"

    @property
    def reader(self) -> str:
        """The name of the function that reads a vector of them."""
        return f"read_{self.stored}"

    @property
    def writer(self) -> str:
        """The name of the function that writes a vector of them."""
        return f"write_{self.stored}"

    def lane_reader(self, width: int) -> str:
        """Return the function that reads up to `width` elements, one `step` behind the other."""
        half = f"vload_half{width}(0, (const GLOBAL_MEM half *)p)"
        return self._function(_READER, self.reader, width, half if self.load else f"vload{width}(0, p)")

    def lane_writer(self, width: int) -> str:
        """Return the function that writes up to `width` elements, one `step` behind the other."""
        half = f"vstore_half{width}_rte(value, 0, (GLOBAL_MEM half *)p)"
        return self._function(_WRITER, self.writer, width, half if self.store else f"vstore{width}(value, 0, p)")

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
