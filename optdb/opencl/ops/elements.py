"""Kernels that go over the elements of arrays: one for arrays that lie alike, one for any strides.

The work items of both take pieces of the elements, each piece one after the other (see
:func:`optdb.opencl.ops.layout.chunks`). In the general kernel a piece is walked row by
row, and the place of a row is worked out once.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import numpy as np

from optdb.host.graph import Apply
from optdb.opencl.kernels import ARRAY, SIZE, SSIZE, CompiledKernel, Kernel, ctype
from optdb.opencl.ops.layout import chunks, collapse, size_of, strides_of
from optdb.opencl.ops.operand import Operand
from optdb.opencl.scalars.code import scalar_code
from optdb.runtime.arrays import Array

if TYPE_CHECKING:
    from optdb.runtime.context import Context

#: Numbers are rounded as NumPy rounds them: after each step.
_ROUND_EACH_STEP = "#pragma OPENCL FP_CONTRACT OFF\n"

#: What holds any value of so many bytes, to copy it as it is.
RAW = {1: "uchar", 2: "ushort", 4: "uint", 8: "ulong", 16: "ulong2"}


def once_per_node(method: Callable[[Any, Apply], Any]) -> Callable[[Any, Apply], Any]:
    """Remember what a method of an op returned for a node, as long as there is the node."""
    known: WeakKeyDictionary[Apply, Any] = WeakKeyDictionary()

    @functools.wraps(method)
    def remembering(op: Any, node: Apply) -> Any:
        if node not in known:
            known[node] = method(op, node)
        return known[node]

    return remembering


class ElementKernels:
    """What computes some arrays from others, element by element.

    Parameters
    ----------
    inputs, outputs : sequence of Operand
        The arrays.
    statements : str
        OpenCL C that sets an element of each output from elements of the inputs.
    helpers : str
        Functions that the statements call.
    ndim : int
        The most dimensions that the arrays will have.
    flags : sequence of str
        What the device must have.
    name : str
        Of the kernels, if an op has several kinds.
    numbers : sequence of (str, str)
        Name and dtype of numbers that the statements use besides.
    """

    def __init__(
        self,
        inputs: Sequence[Operand],
        outputs: Sequence[Operand],
        statements: str,
        helpers: str = "",
        ndim: int = 1,
        flags: Sequence[str] = (),
        name: str = "elements",
        numbers: Sequence[tuple[str, str]] = (),
    ) -> None:
        self.inputs = list(inputs)
        self.outputs = list(outputs)
        self.ndim = max(ndim, 1)
        self.name = name
        self._statements = statements
        self._helpers = _ROUND_EACH_STEP + helpers
        self._flags = flags
        self._numbers = list(numbers)

    @classmethod
    def of_scalar_op(
        cls,
        op: Any,
        dtypes: Sequence[str],
        out_dtypes: Sequence[str],
        single: Sequence[bool],
        ndim: int,
        name: str = "elements",
    ) -> ElementKernels:
        """Return the kernels that apply a scalar op.

        Parameters
        ----------
        op : ScalarOp
            The op on numbers.
        dtypes, out_dtypes : sequence of str
            Of its inputs and outputs.
        single : sequence of bool
            For each input, whether the whole array is one element.
        ndim : int
            Number of dimensions.
        name : str
            Of the kernels.

        Raises
        ------
        NoCode
            If there is no OpenCL C for it.
        """
        inputs = [Operand.of(f"i{i}", dtype, one) for i, (dtype, one) in enumerate(zip(dtypes, single, strict=True))]
        outputs = [Operand.of(f"o{i}", dtype) for i, dtype in enumerate(out_dtypes)]
        code = scalar_code(op, dtypes, [x.name for x in inputs], [x.name for x in outputs])
        flags = Kernel.get_flags(*sorted(code.dtypes))
        return cls(inputs, outputs, code.statements, code.helpers, ndim, flags, name)

    @classmethod
    def copying(cls, dtype: str, ndim: int, name: str = "copy", single: bool = False) -> ElementKernels:
        """Return the kernels that copy arrays of any dtype, bit by bit."""
        raw = RAW[np.dtype(dtype).itemsize]
        return cls(
            [Operand("i0", raw, raw, single=single)], [Operand("o0", raw, raw)], "o0 = i0;", ndim=ndim, name=name
        )

    def kernels(self) -> list[Kernel]:
        """Return the two kernels; they are of one code."""
        code = "\n".join([self._helpers, self._alike(), self._strided()])
        arrays = [ARRAY] * len(self._operands)
        steps = [SSIZE] * (self.ndim * len(self._operands))
        common = [SIZE, SIZE, *[dtype for _, dtype in self._numbers]]
        return [
            Kernel(code, f"{self.name}_alike", [*common, *arrays], self._flags),
            Kernel(code, f"{self.name}_strided", [*common, *[SIZE] * self.ndim, *arrays, *steps], self._flags),
        ]

    def launch(
        self,
        kernels: Mapping[str, CompiledKernel],
        context: Context,
        shape: Sequence[int],
        arrays: Sequence[Array],
        numbers: Sequence[Any] = (),
    ) -> None:
        """Compute.

        Parameters
        ----------
        kernels : mapping
            The compiled kernels, by name.
        context : Context
            Where they run.
        shape : sequence of int
            What is gone over.
        arrays : sequence of Array
            Inputs and outputs, of as many dimensions; each length is that of `shape`, or 1.
        numbers : sequence
            The values of what was declared as such.
        """
        n = size_of(shape)
        if not n:
            return
        lengths, steps = collapse(shape, [strides_of(array, shape) for array in arrays])
        items, chunk = chunks(context, n)
        if len(lengths) <= 1 and self._lie_alike(steps):
            _launch(kernels[f"{self.name}_alike"], context, items, n, chunk, *numbers, *arrays)
            return
        missing = self.ndim - len(lengths)
        lengths = (1,) * missing + lengths
        flat = [step for own in steps for step in (0,) * missing + own]
        _launch(kernels[f"{self.name}_strided"], context, items, n, chunk, *numbers, *lengths, *arrays, *flat)

    @property
    def _common(self) -> list[str]:
        """What both kernels take first, in the code."""
        return ["ga_size n", "ga_size chunk", *[f"{ctype(dtype)} {name}" for name, dtype in self._numbers]]

    @property
    def _operands(self) -> list[Operand]:
        return [*self.inputs, *self.outputs]

    def _lie_alike(self, steps: Sequence[Sequence[int]]) -> bool:
        return all(x.single or own in ((1,), ()) for x, own in zip(self._operands, steps, strict=True))

    def _alike(self) -> str:
        many = [x for x in self.inputs if not x.single]
        return f"""
KERNEL void {self.name}_alike({", ".join([*self._common, *(x.param for x in self._operands)])})
{{
{_lines(x.pointer for x in self._operands)}
const ga_size begin = get_global_id(0) * chunk;
const ga_size end = min(begin + chunk, n);
if (begin >= end)
    return;
{_lines(x.read("0") for x in self.inputs if x.single)}
for (ga_size i = begin; i < end; ++i) {{
{_lines(x.read("i") for x in many)}
{_lines(x.declare() for x in self.outputs)}
{self._statements}
{_lines(x.write("i") for x in self.outputs)}
}}
}}
"""

    def _strided(self) -> str:
        dims = range(self.ndim)
        last = self.ndim - 1
        lengths = [f"ga_size len{d}" for d in dims]
        steps = [f"ga_ssize {x.name}_s{d}" for x in self._operands for d in dims]
        params = ", ".join([*self._common, *lengths, *(x.param for x in self._operands), *steps])
        outer = [f"const ga_size at{d} = rest % len{d}; rest /= len{d};" for d in reversed(dims)]

        def row(x: Operand) -> str:
            place = " + ".join(f"(ga_ssize)at{d} * {x.name}_s{d}" for d in dims)
            return f"ga_ssize {x.name}_p = {place};"

        return f"""
KERNEL void {self.name}_strided({params})
{{
{_lines(x.pointer for x in self._operands)}
ga_size i = get_global_id(0) * chunk;
const ga_size end = min(i + chunk, n);
while (i < end) {{
ga_size rest = i;
{_lines(outer)}
{_lines(row(x) for x in self._operands)}
const ga_size stop = min(end, i + (len{last} - at{last}));
for (; i < stop; ++i) {{
{_lines(x.read(f"{x.name}_p") for x in self.inputs)}
{_lines(x.declare() for x in self.outputs)}
{self._statements}
{_lines(x.write(f"{x.name}_p") for x in self.outputs)}
{_lines(f"{x.name}_p += {x.name}_s{last};" for x in self._operands)}
}}
}}
}}
"""


def _lines(lines: Iterable[str]) -> str:
    return "\n".join(lines)


def _launch(kernel: CompiledKernel, context: Context, items: int, *args: Any) -> None:
    if context.flavour == "cpu":
        kernel.call(items, 1, *args)
    else:
        kernel.scall(items, *args)
