"""Translates PyTensor's scalar ops, and graphs of them, into programs of named scalar operations."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any

from pytensor.graph.traversal import io_toposort
from pytensor.scalar.basic import ScalarInnerGraphOp, get_scalar_type

from optdb.codegen.scalars.code import computed_dtypes
from optdb.codegen.scalars.program import Number, Program, ProgramBuilder, Scalar, Slot, program_of_graph
from optdb.codegen.scalars.types import NoCode

#: Names that differ from the names of the classes.
_NAMES = {
    "Sign": "Sgn",
    "Reciprocal": "Inv",
    "Sigmoid": "ScalarSigmoid",
    "Softplus": "ScalarSoftplus",
    "ScalarMaximum": "Maximum",
    "ScalarMinimum": "Minimum",
}
#: Classes are identified by name in these modules only: a user's op may have the same name.
_MODULES = ("pytensor.scalar.", "pytensor.tensor.math", "pytensor.tensor.xlogx")


def program_of(op: Any, dtypes: Sequence[str]) -> Program:
    """Return the program of a scalar op for inputs of the given dtypes.

    Raises
    ------
    NoCode
        If the op has no program.
    """
    return _program_of(op, tuple(dtypes))


@functools.lru_cache(maxsize=10_000)
def _program_of(op: Any, dtypes: tuple[str, ...]) -> Program:
    if isinstance(op, ScalarInnerGraphOp):
        if not hasattr(op, "inputs") or type(op).__name__ != "Composite":
            raise NoCode(f"no OpenCL C for {type(op).__name__}")
        graph = op.fgraph
        nodes = io_toposort(graph.inputs, graph.outputs)
        program = program_of_graph(dtypes, graph.inputs, graph.outputs, nodes, program_of)
    else:
        program = _of_op(op, dtypes)
    computed_dtypes(program)  # raises NoCode if an operation has no code
    return program


def _of_op(op: Any, dtypes: tuple[str, ...]) -> Program:
    name = type(op).__name__
    if not type(op).__module__.startswith(_MODULES):
        raise NoCode(f"no OpenCL C for {type(op).__module__}.{name}")
    node = op.make_node(*[get_scalar_type(dtype).make_variable() for dtype in dtypes])
    dtype = node.outputs[0].type.dtype
    if name in _COMPOSED:
        return _COMPOSED[name](dtypes, dtype)
    properties = tuple(sorted((key, getattr(op, key)) for key in ("openlow", "openhi") if hasattr(op, key)))
    return Program.of(Scalar(_NAMES.get(name, name), dtype, properties), dtypes)


def _log1mexp(dtypes: tuple[str, ...], dtype: str) -> Program:
    """Return log(1 - exp(x)), by whichever of two formulas is accurate for x."""
    builder = ProgramBuilder(dtypes)
    x: Slot = 0
    if dtypes[0] != dtype:
        x = builder.apply(Scalar("Cast", dtype), [x])
    near = builder.apply(Scalar("GT", "bool"), [x, Number.of(-math.log(2), dtype)])
    expm1 = builder.apply(Scalar("Neg", dtype), [builder.apply(Scalar("Expm1", dtype), [x])])
    exp = builder.apply(Scalar("Neg", dtype), [builder.apply(Scalar("Exp", dtype), [x])])
    by_expm1, by_exp = builder.apply(Scalar("Log", dtype), [expm1]), builder.apply(Scalar("Log1p", dtype), [exp])
    return builder.build([builder.apply(Scalar("Switch", dtype), [near, by_expm1, by_exp])])


#: Scalar ops that are composed of others.
_COMPOSED = {"Log1mexp": _log1mexp}
