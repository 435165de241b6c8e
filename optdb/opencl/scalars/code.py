"""From a scalar op, or a graph of them, to statements of OpenCL C.

A Composite or a Program is spelled out step by step; what it holds more than once is computed
once, and what is the same for all elements is computed ahead of them. With a width, the
statements are of vectors.
"""

from __future__ import annotations

import functools
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

from optdb.codegen.scalars.helpers import Helpers
from optdb.codegen.scalars.step import ScalarStep, expression
from optdb.codegen.scalars.types import NoCode, c_type, is_complex, literal
from optdb.host.graph import Constant, io_toposort
from optdb.host.scalars import Composite, scalar_node
from optdb.opencl.scalars import complex_table as _complex_table  # noqa: F401  and so does this
from optdb.opencl.scalars import special as _special  # noqa: F401  and so does this
from optdb.opencl.scalars import table as _table  # noqa: F401  fills the table
from optdb.opencl.scalars.lanes import LaneStep, lane_by_lane, lanes_expression
from optdb.opencl.scalars.program import Number, Program


@dataclass(frozen=True)
class ScalarCode:
    """What computes one element, or one vector of them.

    Parameters
    ----------
    helpers : str
        Functions that the statements call.
    statements : str
        They assign the outputs, which are declared outside.
    dtypes : frozenset of str
        All dtypes that are computed on the way: a device must have them.
    once : str
        Statements for what all elements have in common. They come ahead of the others.
    """

    helpers: str
    statements: str
    dtypes: frozenset[str]
    once: str = ""


def scalar_code(
    op: Any,
    dtypes: Sequence[str],
    inputs: Sequence[str],
    outputs: Sequence[str],
    uniform: Collection[str] = (),
    width: int = 1,
    helpers: Helpers | None = None,
) -> ScalarCode:
    """Return the OpenCL C of a scalar op.

    Parameters
    ----------
    op : ScalarOp
        An op on numbers.
    dtypes : sequence of str
        The dtypes of its inputs.
    inputs, outputs : sequence of str
        What these are called in the program.
    uniform : collection of str
        Those of the inputs that are the same for all elements.
    width : int
        How many elements are computed at once; the other inputs and the outputs are vectors, if it is more than one.
    helpers : Helpers, optional
        Takes the functions that the statements call, where several ops are in one code.

    Raises
    ------
    NoCode
        If there is none; the message says why.
    """
    writer = _CodeWriter(uniform, width, helpers)
    results = writer.apply(op, list(dtypes), list(inputs))
    writer.flush()
    for name, (value, dtype) in zip(outputs, results, strict=True):
        spread = width > 1 and writer.is_uniform(value)
        writer.lines.append(f"{name} = {f'({c_type(dtype)}{width})({value})' if spread else value};")
    once = "\n".join(writer.once)
    return ScalarCode(writer.helpers.source, "\n".join(writer.lines), frozenset(writer.used), once)


@dataclass(frozen=True)
class ScalarSignature:
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
def signature(op: Any, dtypes: tuple[str, ...]) -> ScalarSignature:
    """Return what is known of a scalar op for inputs of `dtypes`; a graph asks for few, again and again."""
    try:
        outputs = tuple(out.type.dtype for out in scalar_node(op, dtypes).outputs)
        names = [f"i{i}" for i in range(len(dtypes))], [f"o{i}" for i in range(len(outputs))]
        return ScalarSignature(None, outputs, scalar_code(op, dtypes, *names).dtypes)
    except NoCode as reason:
        return ScalarSignature(str(reason))


def unsupported_reason(op: Any, dtypes: Sequence[str]) -> str | None:
    """Return why a scalar op has no OpenCL C for inputs of `dtypes`, None if it has."""
    return signature(op, tuple(dtypes)).reason


class _CodeWriter:
    """Writes steps one after another; each gets a name of its own."""

    def __init__(self, uniform: Collection[str] = (), width: int = 1, helpers: Helpers | None = None) -> None:
        self.lines: list[str] = []
        self.once: list[str] = []
        self.helpers = helpers or Helpers()
        self.used: set[str] = set()
        self._uniform = set(uniform)
        self._hoists = bool(uniform) or width > 1
        self._width = width
        self._names = 0
        #: What has to be computed lane by lane, and has not been written yet.
        self._pending: list[str] = []
        self._read: dict[str, str] = {}
        self._made: dict[str, str] = {}

    def apply(self, op: Any, dtypes: list[str], args: list[str]) -> list[tuple[str, str]]:
        """Write one op, and return an expression and a dtype for each output."""
        for dtype in dtypes:
            c_type(dtype)
        self.used.update(dtypes)
        if isinstance(op, Composite):
            return self._graph(op, args)
        if isinstance(op, Program):
            return self._program(op, args)
        (out,) = [output.type.dtype for output in scalar_node(op, dtypes).outputs]
        return [(self._step(op, dtypes, out, args), out)]

    def is_uniform(self, value: str) -> bool:
        """Tell whether a value is the same for all elements: a literal, or computed of such."""
        return value in self._uniform or not _is_name(value)

    def flush(self) -> None:
        """Write what is pending."""
        if self._pending:
            self.lines += lane_by_lane(self._pending, self._read, self._made, self._width)
        self._pending, self._read, self._made = [], {}, {}

    def _step(self, op: Any, dtypes: list[str], out: str, args: list[str]) -> str:
        self.used.add(out)
        name = f"t{self._names}"
        self._names += 1
        if self._hoists and all(self.is_uniform(arg) for arg in args):
            self._uniform.add(name)
            self._scalar(self.once, name, op, dtypes, out, args)
        elif self._width == 1:
            self._scalar(self.lines, name, op, dtypes, out, args)
        elif any(map(is_complex, (*dtypes, out))):
            raise NoCode("complex numbers are not computed in vectors")
        else:
            self._lanes(name, op, dtypes, out, args)
        return name

    def _scalar(self, lines: list[str], name: str, op: Any, dtypes: list[str], out: str, args: list[str]) -> None:
        value = expression(ScalarStep(op, dtypes, out, args, self.helpers, self.used))
        lines.append(f"const {c_type(out)} {name} = {value};")

    def _lanes(self, name: str, op: Any, dtypes: list[str], out: str, args: list[str]) -> None:
        step = LaneStep(op, dtypes, out, args, self.helpers, self.used, self._width, self.is_uniform)
        value = lanes_expression(step)
        if value is not None:
            if any(arg in self._made for arg in args):
                self.flush()
            self.lines.append(f"const {c_type(out)}{self._width} {name} = {value};")
            return
        for arg, dtype in zip(args, dtypes, strict=True):
            if not self.is_uniform(arg) and arg not in self._made:
                self._read[arg] = c_type(dtype)
        each = [arg if self.is_uniform(arg) else f"{arg}_s" for arg in args]
        self._scalar(self._pending, f"{name}_s", op, dtypes, out, each)
        self._made[name] = c_type(out)

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

    def _program(self, op: Program, args: list[str]) -> list[tuple[str, str]]:
        known = list(zip(args, op.dtypes, strict=True))

        def value(slot: int | Number) -> tuple[str, str]:
            return (literal(slot.value, slot.dtype), slot.dtype) if isinstance(slot, Number) else known[slot]

        for step, slots in op.steps:
            values, dtypes = zip(*map(value, slots)) if slots else ((), ())
            known += self.apply(step, list(dtypes), list(values))
        return [value(slot) for slot in op.results]


def _is_name(value: str) -> bool:
    return value.isidentifier() and value not in ("NAN", "INFINITY")
