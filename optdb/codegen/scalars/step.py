"""One application of a scalar op in a program, and the table of what stands for each op."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from optdb.codegen.scalars.helpers import Helpers
from optdb.codegen.scalars.types import NoCode, c_type, convert, is_complex, is_float, unsigned


@dataclass
class ScalarStep:
    """One application of a scalar op in a program.

    Parameters
    ----------
    op : ScalarOp
        The op.
    dtypes : list of str
        The dtypes of its inputs.
    out : str
        The dtype of its output.
    args : list of str
        The inputs, as expressions.
    helpers : Helpers
        Takes the functions that the expression calls.
    used : set of str
        Takes the dtypes that are computed in between.
    """

    op: Any
    dtypes: list[str]
    out: str
    args: list[str]
    helpers: Helpers
    used: set[str]

    def inputs(self, dtype: str | None = None) -> list[str]:
        """Return the inputs, converted to `dtype`; to the output's if not given."""
        dtype = dtype or self.out
        self.used.add(dtype)
        return [f"({convert(arg, own, dtype)})" for arg, own in zip(self.args, self.dtypes, strict=True)]

    def call(self, kind: str) -> str:
        """Return a call of a helper on all inputs, in the output's type."""
        function = self.helpers.get(kind, c_type(self.out), unsigned(self.out))
        return f"{function}({', '.join(self.inputs())})"

    @property
    def is_complex(self) -> bool:
        """Tell whether complex numbers go in or come out."""
        return any(map(is_complex, (*self.dtypes, self.out)))

    @property
    def number(self) -> str:
        """'float', 'int' or 'uint', as the output is."""
        return "float" if is_float(self.out) else "int" if self.out.startswith("int") else "uint"


Entry = Callable[[ScalarStep], str]
#: Class of a scalar op to its entry.
ENTRIES: dict[type, Entry] = {}
#: The same where complex numbers go in or come out.
COMPLEX_ENTRIES: dict[type, Entry] = {}


def entry(*ops: type, table: dict[type, Entry] = ENTRIES) -> Callable[[Entry], Entry]:
    """Make the decorated function the entry of some ops."""

    def put(function: Entry) -> Entry:
        table.update(dict.fromkeys(ops, function))
        return function

    return put


def expression(step: ScalarStep) -> str:
    """Return the OpenCL C of one step.

    Raises
    ------
    NoCode
        If there is none for that op.
    """
    known = (COMPLEX_ENTRIES if step.is_complex else ENTRIES).get(type(step.op))
    if known is None:
        raise NoCode(f"no OpenCL C for {type(step.op).__name__}{' of complex numbers' if step.is_complex else ''}")
    return known(step)
