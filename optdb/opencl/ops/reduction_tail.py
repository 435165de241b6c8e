"""What a reduction stores: its results, or what is computed of them as they are ready.

A :class:`Tail` is the end of the kernels of :mod:`optdb.opencl.ops.reduction_code`: parameters, places and statements
for the arrays that have an element for each result, of which some may be read and some are written.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from optdb.codegen.elementwise import Operand
from optdb.codegen.scalars.helpers import Helpers
from optdb.codegen.scalars.types import c_type, convert
from optdb.opencl.scalars.code import ScalarCode, scalar_code
from optdb.opencl.scalars.program import Program


@dataclass(frozen=True)
class Tail:
    """What is done with each result of a reduction.

    Parameters
    ----------
    op : ScalarOp
        What makes the outputs of the result, which comes first, and of elements of other arrays.
    dtypes : tuple of str
        Of the result, and of the other arrays.
    single : tuple of bool
        For each of the others, whether it is one element.
    out_dtypes : tuple of str
        Of the outputs.
    """

    op: Any
    dtypes: tuple[str, ...]
    single: tuple[bool, ...]
    out_dtypes: tuple[str, ...]

    @classmethod
    def storing(cls, dtype: str) -> Tail:
        """Return the tail that stores results of a dtype as they are."""
        return cls(Program((dtype,), (), (0,)), (dtype,), (), (dtype,))

    @property
    def computes(self) -> bool:
        """Tell whether it does more than to store."""
        return not isinstance(self.op, Program) or bool(self.op.steps) or len(self.out_dtypes) > 1

    @property
    def inputs(self) -> list[Operand]:
        """The other arrays."""
        return [Operand.of(f"p{i}", *pair) for i, pair in enumerate(zip(self.dtypes[1:], self.single, strict=True))]

    @property
    def outputs(self) -> list[Operand]:
        """What is written; parts of results are left in the first one."""
        return [Operand.of(f"z{i}", dtype) for i, dtype in enumerate(self.out_dtypes)]

    @property
    def operands(self) -> list[Operand]:
        """All arrays."""
        return [*self.inputs, *self.outputs]

    @property
    def stepping(self) -> list[Operand]:
        """The arrays that have a place for each result."""
        return [x for x in self.operands if not x.single]

    def params(self, kept: int) -> list[str]:
        """Return the parameters in the code."""
        steps = [f"ga_ssize {x.name}_k{d}" for x in self.stepping for d in range(kept)]
        return [*[x.param for x in self.operands], "ga_ssize z_part", *steps]

    def code(self, helpers: Helpers) -> ScalarCode:
        """Return what sets the outputs from ``result`` and the others."""
        names = ["result", *[x.name for x in self.inputs]], [x.name for x in self.outputs]
        return scalar_code(self.op, self.dtypes, *names, helpers=helpers)

    def write(self, place: Callable[[Operand], str], value: str, acc_dtype: str, helpers: Helpers) -> str:
        """Return statements that store what is made of a result, or a part of one in the accumulator's type.

        Parameters
        ----------
        place : callable
            Returns where an array has its element for this result.
        value : str
            The result, or the part.
        acc_dtype : str
            Its dtype.
        helpers : Helpers
            Takes the functions that the statements call.
        """
        kind, first = c_type(acc_dtype), self.outputs[0]
        lines = [
            f"const {c_type(self.dtypes[0])} result = {convert(value, acc_dtype, self.dtypes[0])};",
            *[x.read("0" if x.single else place(x)) for x in self.inputs],
            *[x.declare() for x in self.outputs],
            self.code(helpers).statements,
            *[x.write(place(x)) for x in self.outputs],
        ]
        parts = f"((GLOBAL_MEM {kind} *){first.name}_at)"
        whole = "\n".join(lines)
        return f"""if (parts == 1) {{
{whole}
}} else {{
    {parts}[{place(first)} + (ga_ssize)mine * z_part] = {value};
}}"""
