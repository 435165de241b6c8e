"""Code of elementwise kernels.

In kernels for any device, an item loops over a chunk of the elements: ``alike`` is for arrays of the same layout, and
``strided`` for arrays of any strides. On CPUs, ``lanes`` processes a row in vectors. On GPUs, an item processes four
neighbours in arrays of the same layout (``quads``), four neighbours in a row (``row_quads``), or one element
(``narrow``). ``row_quads`` and ``narrow`` use 32-bit indexes; arrays that need larger indexes use ``wide``, which
computes the same as ``strided``.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from optdb.codegen.kernels import ctype
from optdb.codegen.scalars.types import C_TYPES
from optdb.codegen.source import filled, functions, joined, load_w, row_offsets, write_w
from optdb.runtime.device_profiles import DeviceKind
from optdb.runtime.sizes import SymInt

#: Vector width on CPUs, in elements.
WIDTH = 16
#: Number of neighbours that a GPU work item processes at once, and a map from the item size to the type that holds
#: them.
QUAD = 4
QUADS = {1: "uchar4", 2: "ushort4", 4: "uint4", 8: "ulong4", 16: "ulong8"}


@dataclass(frozen=True)
class Operand:
    """An array that a kernel reads or writes."""

    name: str
    #: The C types of an element: in memory, and in registers.
    stored: str
    computed: str
    #: Names of the functions that convert between the two types, or empty strings if the types are equal.
    load: str = ""
    store: str = ""
    #: Whether the array has a single element, which is read once.
    single: bool = False
    size: int = 0

    @classmethod
    def of(cls, name: str, dtype: str, single: bool = False) -> Operand:
        """Return the operand for an array of a dtype."""
        return cls(name, ctype(dtype), C_TYPES[dtype], load_w(dtype), write_w(dtype), single, np.dtype(dtype).itemsize)

    @property
    def param(self) -> str:
        """The kernel parameter: a pointer to the first element."""
        return f"ARRAY {self.stored} *{self.name}_at"

    def read(self, index: str) -> str:
        """Return a statement that reads one element."""
        return f"const {self.computed} {self.name} = {self.load}({self.name}_at[{index}]);"

    def declare(self) -> str:
        """Return a statement that declares an element to be written."""
        return f"{self.computed} {self.name};"

    def write(self, index: str) -> str:
        """Return a statement that writes one element."""
        return f"{self.name}_at[{index}] = {self.store}({self.name});"

    def declare_quad(self) -> str:
        """Return a statement that declares four neighbours."""
        return f"union {{ {QUADS[self.size]} v; {self.stored} s[{QUAD}]; }} {self.name}_quad;"

    def read_quad(self, index: str, condition: str, other: str = "", array: str = "") -> str:
        """Return statements that read four neighbours of `array` (by default the operand), starting at `index`.

        If `condition` is false, each element ``l`` is read at `other`, or at `index` if `other` is empty.
        """
        array = array or f"{self.name}_at"
        return f"""{self.declare_quad()}
if ({condition})
    {self.name}_quad.v = *(const GLOBAL_MEM {QUADS[self.size]} *)({array} + {index});
else
    for (int l = 0; l < {QUAD}; ++l)
        {self.name}_quad.s[l] = {array}[{other or index}];"""

    def write_quad(self, index: str, is_last: bool, array: str = "") -> str:
        """Return code that writes four neighbours, starting at `index`; with `is_last`, only `count` of them."""
        array = array or f"{self.name}_at"
        whole = f"*(GLOBAL_MEM {QUADS[self.size]} *)({array} + {index}) = {self.name}_quad.v;"
        if not is_last:
            return whole
        return f"""if (count == {QUAD})
    {whole}
else
    for (int l = 0; l < count; ++l)
        {array}[{index} + l] = {self.name}_quad.s[l];"""

    def reader(self, prefix: str) -> str:
        """Return the name of the function that reads a vector of elements; `prefix` is the name of the kernels."""
        return f"{prefix}_read_{self.stored}"

    def writer(self, prefix: str) -> str:
        """Return the name of the function that writes a vector of elements; `prefix` is the name of the kernels."""
        return f"{prefix}_write_{self.stored}"

    def lane_reader(self, prefix: str) -> str:
        """Return the function that reads up to `WIDTH` elements, `step` apart."""
        return self._lane_function("READ", self.reader(prefix))

    def lane_writer(self, prefix: str) -> str:
        """Return the function that writes up to `WIDTH` elements, `step` apart."""
        return self._lane_function("WRITE", self.writer(prefix))

    def _lane_function(self, kind: str, name: str) -> str:
        words = {
            kind: name,
            "T": self.stored,
            "MEMORY": "half" if self.load else self.stored,
            "LANE": self.computed,
            "VECTOR": f"{self.computed}{WIDTH}",
            "WIDTH": WIDTH,
            "LOAD": self.load,
            "STORE": self.store,
            "VLOAD": f"vload_half{WIDTH}" if self.load else f"vload{WIDTH}",
            "VSTORE": f"vstore_half{WIDTH}_rte" if self.store else f"vstore{WIDTH}",
        }
        return filled(functions("elementwise.cl")[kind], **words)


@dataclass(frozen=True)
class ElementCode:
    """The parts of elementwise kernels."""

    inputs: tuple[Operand, ...]
    outputs: tuple[Operand, ...]
    #: Code that computes an element of each output, or a vector of elements on CPUs.
    statements: str
    ndim: int = 1
    name: str = "elements"
    #: Code that runs once, before the loop over elements.
    once: str = ""
    helpers: str = ""
    #: Names and dtypes of scalar parameters that the statements use.
    numbers: tuple[tuple[str, str], ...] = ()
    #: The flags of the kernels, or None if the code determines them.
    flags: tuple[str, ...] | None = None
    #: Kind of device that the kernels are for; None for any.
    device_kind: DeviceKind | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "ndim", max(self.ndim, 1))

    @property
    def operands(self) -> list[Operand]:
        return [*self.inputs, *self.outputs]

    @property
    def many(self) -> list[Operand]:
        """The inputs that have more than one element."""
        return [x for x in self.inputs if not x.single]

    @property
    def stepping(self) -> list[Operand]:
        """Return the operands that need an index for each element."""
        return [*self.many, *self.outputs]

    def kernels(self) -> str:
        """Return the code of the kernels for `device_kind`, or for any device if it is None."""
        last, code = self.ndim - 1, functions("elementwise.cl")
        offsets = {f"{x.name}_p": ("0", f"{x.name}_s") for x in self.stepping}
        once = joined([*(x.read("0") for x in self.inputs if x.single), self.once])
        rows = {
            "PARAMS": self._params("ga_size", "ga_ssize"),
            "OFFSETS": row_offsets("len", self.ndim, offsets),
            "STOP": f"min(end, i + (len{last} - column))",
            "WIDTH": 1,
            "POINTS": self._element("_p"),
            "NEXT": joined(f"{x.name}_p += {x.name}_s{last};" for x in self.stepping),
            "FINISH": "",
        }

        def kernel(template: str, name: str, words: dict[str, Any]) -> str:
            return filled(code[template], **{template: f"{self.name}_{name}", "ONCE": once}, **words)

        if self.device_kind == "cpu":
            readers = [x.lane_reader(self.name) for x in self.many]
            writers = [x.lane_writer(self.name) for x in self.outputs]
            return joined(dict.fromkeys([*readers, *writers, kernel("chunked", "lanes", rows | self._vector_words())]))
        if self.device_kind is None:
            alike = {"PARAMS": self._params(), "OFFSETS": "", "STOP": "end", "POINTS": self._element(), "NEXT": ""}
            return kernel("chunked", "strided", rows) + kernel("chunked", "alike", rows | alike)
        narrow = {"PARAMS": self._params("ga_uint", "ga_int"), "INDEX": "uint"}
        locate = row_offsets("len", self.ndim, offsets, "uint", "int")
        quads = {"PARAMS": self._params(), "INDEX": "ga_size", "EACH": QUAD, "POINTS": self._contiguous_quads()}
        kernels = [
            kernel("chunked", "wide", rows),
            kernel("neighbours", "narrow", narrow | {"EACH": 1, "POINTS": joined([locate, self._element("_p")])}),
            kernel("neighbours", "quads", quads),
        ]
        if self.ndim > 1:
            row_quads = {"EACH": QUAD, "POINTS": joined([locate, self._quads_of_rows()])}
            kernels.append(kernel("neighbours", "row_quads", narrow | row_quads))
        return "".join(kernels)

    def _params(self, size: str = "", step: str = "") -> str:
        """Return the parameters, including the lengths and strides if their types are given."""
        dims = range(self.ndim) if size else ()
        numbers = ["ga_size n", "ga_size chunk", *[f"{ctype(dtype)} {name}" for name, dtype in self.numbers]]
        steps = [f"{step} {x.name}_s{d}" for x in self.stepping for d in dims]
        return ", ".join([*numbers, *[f"{size} len{d}" for d in dims], *[x.param for x in self.operands], *steps])

    def _element(self, offset: str | None = None) -> str:
        """Return code that computes element `i`, or the element at the offsets whose names have the suffix `offset`."""

        def at(x: Operand) -> str:
            return "i" if offset is None else f"{x.name}{offset}"

        reads = [x.read(at(x)) for x in self.many]
        declared = [x.declare() for x in self.outputs]
        return joined([*reads, *declared, self.statements, *(x.write(at(x)) for x in self.outputs)])

    def _vector_words(self) -> dict[str, Any]:
        def at(x: Operand) -> str:
            return f"{x.name}_at + {x.name}_p, {x.name}_s{self.ndim - 1}, count"

        vectors = [
            f"const int count = (int)min((ga_size){WIDTH}, stop - i);",
            *[f"const {x.computed}{WIDTH} {x.name} = {x.reader(self.name)}({at(x)});" for x in self.many],
            *[f"{x.computed}{WIDTH} {x.name};" for x in self.outputs],
            self.statements,
            *[f"{x.writer(self.name)}({x.name}, {at(x)});" for x in self.outputs],
        ]
        steps = [f"{x.name}_p += {WIDTH} * {x.name}_s{self.ndim - 1};" for x in self.stepping]
        return {"WIDTH": WIDTH, "POINTS": joined(vectors), "NEXT": joined(steps)}

    def _contiguous_quads(self) -> str:
        count = f"const int count = (int)min((ga_size){QUAD}, n - i);"
        reads = [x.read_quad("i", f"count == {QUAD}", "i + min(l, count - 1)") for x in self.many]
        return self._quads([count, *reads], [x.write_quad("i", is_last=True) for x in self.outputs])

    def _quads_of_rows(self) -> str:
        reads = [x.read_quad(f"{x.name}_p", f"{x.name}_s{self.ndim - 1}") for x in self.many]
        return self._quads(reads, [x.write_quad(f"{x.name}_p", is_last=False) for x in self.outputs])

    def _quads(self, reads: Iterable[str], writes: Iterable[str]) -> str:
        lines = [
            *reads,
            *[x.declare_quad() for x in self.outputs],
            f"#pragma unroll\nfor (int l = 0; l < {QUAD}; ++l) {{",
            *[f"const {x.computed} {x.name} = {x.load}({x.name}_quad.s[l]);" for x in self.many],
            *[x.declare() for x in self.outputs],
            self.statements,
            *[f"{x.name}_quad.s[l] = {x.store}({x.name});" for x in self.outputs],
            "}",
            *writes,
        ]
        return joined(lines)


def has_quad_rows(steps: Sequence[int]) -> bool:
    """Return whether the rows of an array with these strides consist of quads, or broadcast one element.

    The result is False for symbolic strides, because a guard on divisibility would restrict the trace to a quarter of
    the sizes.
    """
    *others, last = steps
    if any(isinstance(step, SymInt) for step in steps):
        return False
    return last == 0 or (last == 1 and not any(step % QUAD for step in others))
