"""From a scalar op, or a graph of them, to statements of OpenCL C.

A Composite is spelled out step by step; what it holds more than once is computed once.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from optdb.host.graph import Constant, io_toposort
from optdb.host.scalars import Composite, scalar_node
from optdb.opencl.scalars import special as _special  # noqa: F401  and so does this
from optdb.opencl.scalars import table as _table  # noqa: F401  fills the table
from optdb.opencl.scalars.helpers import Helpers
from optdb.opencl.scalars.step import Step, expression
from optdb.opencl.scalars.types import NoCode, c_type, literal


@dataclass(frozen=True)
class ScalarCode:
    """What computes one element.

    Parameters
    ----------
    helpers : str
        Functions that the statements call.
    statements : str
        They assign the outputs, which are declared outside.
    dtypes : frozenset of str
        All dtypes that are computed on the way: a device must have them.
    """

    helpers: str
    statements: str
    dtypes: frozenset[str]


def scalar_code(op: Any, dtypes: Sequence[str], inputs: Sequence[str], outputs: Sequence[str]) -> ScalarCode:
    """Return the OpenCL C of a scalar op.

    Parameters
    ----------
    op : ScalarOp
        An op on numbers.
    dtypes : sequence of str
        The dtypes of its inputs.
    inputs, outputs : sequence of str
        What these are called in the program.

    Raises
    ------
    NoCode
        If there is none; the message says why.
    """
    writer = _Writer()
    results = writer.apply(op, list(dtypes), list(inputs))
    for name, (value, _) in zip(outputs, results, strict=True):
        writer.lines.append(f"{name} = {value};")
    return ScalarCode(writer.helpers.source, "\n".join(writer.lines), frozenset(writer.used))


@dataclass(frozen=True)
class Signature:
    """What is known of a scalar op on numbers of some dtypes.

    Parameters
    ----------
    reason : str or None
        Why it has no OpenCL C; None if it has.
    outputs : tuple of str
        The dtypes of its outputs; empty where there is a reason.
    computed : frozenset of str
        All dtypes that are computed on the way.
    """

    reason: str | None
    outputs: tuple[str, ...] = ()
    computed: frozenset[str] = frozenset()


@functools.lru_cache(maxsize=4096)
def signature(op: Any, dtypes: tuple[str, ...]) -> Signature:
    """Return what is known of a scalar op for inputs of `dtypes`; a graph asks for few, again and again."""
    try:
        outputs = tuple(out.type.dtype for out in scalar_node(op, dtypes).outputs)
        names = [f"i{i}" for i in range(len(dtypes))], [f"o{i}" for i in range(len(outputs))]
        return Signature(None, outputs, scalar_code(op, dtypes, *names).dtypes)
    except NoCode as reason:
        return Signature(str(reason))


def why_not(op: Any, dtypes: Sequence[str]) -> str | None:
    """Return why a scalar op has no OpenCL C for inputs of `dtypes`, None if it has."""
    return signature(op, tuple(dtypes)).reason


class _Writer:
    """Writes steps one after another; each gets a name of its own."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.helpers = Helpers()
        self.used: set[str] = set()
        self._names = 0

    def apply(self, op: Any, dtypes: list[str], args: list[str]) -> list[tuple[str, str]]:
        """Write one op, and return an expression and a dtype for each output."""
        for dtype in dtypes:
            c_type(dtype)
        self.used.update(dtypes)
        if isinstance(op, Composite):
            return self._graph(op, args)
        (out,) = [output.type.dtype for output in scalar_node(op, dtypes).outputs]
        return [(self._step(op, dtypes, out, args), out)]

    def _step(self, op: Any, dtypes: list[str], out: str, args: list[str]) -> str:
        self.used.add(out)
        name = f"t{self._names}"
        self._names += 1
        value = expression(Step(op, dtypes, out, args, self.helpers, self.used))
        self.lines.append(f"const {c_type(out)} {name} = {value};")
        return name

    def _graph(self, op: Any, args: list[str]) -> list[tuple[str, str]]:
        known = dict(zip(op.inputs, args, strict=True))

        def value(var: Any) -> str:
            if var in known:
                return known[var]
            if not isinstance(var, Constant):
                raise NoCode(f"{var} of a Composite has no value")
            return literal(var.data, var.type.dtype)

        for node in io_toposort(op.inputs, op.outputs):
            results = self.apply(node.op, [var.type.dtype for var in node.inputs], [value(v) for v in node.inputs])
            known.update((var, result) for var, (result, _) in zip(node.outputs, results, strict=True))
        return [(value(var), var.type.dtype) for var in op.outputs]
