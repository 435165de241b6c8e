"""Translation of Theano's scalar ops, and of graphs of scalar ops, into programs of named scalar ops.

An op's name is the name of its class in ``optdb.host.api.scalars``. A user's op is not translated, even if its class
happens to have such a name.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from optdb.codegen.reductions.folds import FOLDS
from optdb.codegen.scalars.code import computed_dtypes
from optdb.codegen.scalars.program import Scalar, ScalarProgram, program_of_graph
from optdb.codegen.scalars.types import NoCode, c_type
from optdb.host.api import scalars
from optdb.host.api.graph import io_toposort


def program_of(op: Any, dtypes: Sequence[str]) -> ScalarProgram:
    """Return a scalar op's program for inputs of `dtypes`, cached because graphs reuse a few programs many times.

    Raises NoCode if the op has no known name, and TypeError if it does not accept these dtypes.
    """
    dtypes = tuple(dtypes)
    if not isinstance(op, ScalarProgram):
        return _translated(op, _properties(op), dtypes)
    if dtypes != op.dtypes:
        raise TypeError(f"{op} was compiled for {op.dtypes}, but got {dtypes}")
    return op


class FusedScalars(ScalarProgram):
    """A program that serves as the scalar op of an elementwise op."""

    @classmethod
    def like(cls, program: ScalarProgram) -> FusedScalars:
        return cls(program.dtypes, program.steps, program.results)

    def make_new_inplace(self, preference: Any = None, name: str | None = None) -> FusedScalars:
        """Return the program itself: the host asks for an in-place version, but the program's dtypes are fixed."""
        return self


def scalar_name(op: Any) -> str:
    """Return a host scalar op's name in programs; raise NoCode if it has none."""
    name = type(op).__name__
    if getattr(scalars, name, None) is not type(op):
        raise NoCode(f"no OpenCL C for {name}")
    return name


@dataclass(frozen=True)
class ScalarSignature:
    """The properties of a scalar op for inputs of given dtypes."""

    #: Why the op has no OpenCL C code; None if it has code.
    reason: str | None
    #: The dtypes of the op's outputs; empty if `reason` is set.
    outputs: tuple[str, ...] = ()
    #: The dtypes of all intermediate values.
    computed: frozenset[str] = frozenset()


def signature(op: Any, dtypes: Sequence[str]) -> ScalarSignature:
    """Return the properties of a scalar op for inputs of `dtypes`."""
    try:
        program = program_of(op, dtypes)
        return ScalarSignature(None, program.out_dtypes, computed_dtypes(program))
    except NoCode as reason:
        return ScalarSignature(str(reason))


def folding_unsupported_reason(op: Any, dtype: str, acc_dtype: str) -> str | None:
    """Return why a scalar op cannot be folded on the device; None if it can."""
    try:
        if scalar_name(op) not in FOLDS:
            return f"no OpenCL C for reductions by {type(op).__name__}"
        c_type(dtype)
        of_two = signature(op, (acc_dtype, acc_dtype))
    except (NoCode, TypeError) as error:
        return str(error)
    if of_two.reason is None and of_two.outputs != (acc_dtype,):
        return f"{op} of two {acc_dtype} numbers is {of_two.outputs[0]}, so it cannot be used in a reduction"
    return of_two.reason


@functools.lru_cache(maxsize=10_000)
def _translated(op: Any, properties: tuple[Any, ...], dtypes: tuple[str, ...]) -> ScalarProgram:
    if isinstance(op, scalars.Composite):
        return program_of_graph(dtypes, op.inputs, op.outputs, io_toposort(op.inputs, op.outputs), program_of)
    name = scalar_name(op)
    (out,) = scalars.scalar_node(op, dtypes).outputs
    return ScalarProgram.of(Scalar(name, out.type.dtype, properties), dtypes)


def _properties(op: Any) -> tuple[tuple[str, Any], ...]:
    """Return the attributes that distinguish ops of a class, including some that the host's equality ignores."""
    if isinstance(op, scalars.Composite):
        return ()  # the host compares the C code of Composite ops
    plain = [(name, value) for name, value in vars(op).items() if isinstance(value, bool | int | float | str)]
    return tuple(sorted(pair for pair in plain if pair[0] != "name"))
