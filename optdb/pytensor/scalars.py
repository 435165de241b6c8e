"""Translates PyTensor's scalar ops, and graphs of them, into programs of scalars by name."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any

from pytensor.graph.basic import Constant, Variable
from pytensor.graph.traversal import io_toposort
from pytensor.scalar.basic import Cast, ScalarInnerGraphOp, get_scalar_type

from optdb.codegen.scalars.code import computed_dtypes
from optdb.codegen.scalars.program import Number, Program, ProgramBuilder, Scalar, Slot
from optdb.codegen.scalars.types import NoCode

#: Names that differ from those of the classes.
_NAMES = {
    "Sign": "Sgn",
    "Reciprocal": "Inv",
    "Sigmoid": "ScalarSigmoid",
    "Softplus": "ScalarSoftplus",
    "ScalarMaximum": "Maximum",
    "ScalarMinimum": "Minimum",
}
#: The modules whose classes are known by name: an op of a user with the same name is another one.
_MODULES = ("pytensor.scalar.", "pytensor.tensor.math", "pytensor.tensor.xlogx")


def program_of(op: Any, dtypes: Sequence[str]) -> Program:
    """Return the program of a scalar op for inputs of some dtypes.

    Raises
    ------
    NoCode
        If there is none.
    """
    return _program_of(op, tuple(dtypes))


@functools.lru_cache(maxsize=10_000)
def _program_of(op: Any, dtypes: tuple[str, ...]) -> Program:
    if isinstance(op, ScalarInnerGraphOp):
        if not hasattr(op, "inputs") or type(op).__name__ != "Composite":
            raise NoCode(f"no OpenCL C for {type(op).__name__}")
        program = _of_graph(op, dtypes)
    else:
        program = _of_op(op, dtypes)
    computed_dtypes(program)  # raises NoCode for what has no code
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


def _of_graph(op: Any, dtypes: tuple[str, ...]) -> Program:
    builder = ProgramBuilder(dtypes)
    graph = op.fgraph
    values: dict[Variable, tuple[Slot, str]] = dict(zip(graph.inputs, enumerate(dtypes), strict=True))

    def value_of(var: Variable) -> tuple[Slot, str]:
        if var not in values and isinstance(var, Constant):
            return Number.of(var.data, var.type.dtype), var.type.dtype
        return values[var]

    for node in io_toposort(graph.inputs, graph.outputs):
        inputs = [value_of(var) for var in node.inputs]
        program = program_of(node.op, [dtype for _, dtype in inputs])
        results = builder.inline(program, [slot for slot, _ in inputs])
        values.update(zip(node.outputs, zip(results, program.out_dtypes), strict=True))
    return builder.build([value_of(var)[0] for var in graph.outputs])


def _log1mexp(dtypes: tuple[str, ...], dtype: str) -> Program:
    """Return log(1 - exp(x)), by the one of two formulas that loses no digits."""
    builder = ProgramBuilder(dtypes)
    x: Slot = 0
    if dtypes[0] != dtype:
        x = builder.apply(Scalar("Cast", dtype), [x])
    near = builder.apply(Scalar("GT", "bool"), [x, Number.of(-math.log(2), dtype)])
    expm1 = builder.apply(Scalar("Neg", dtype), [builder.apply(Scalar("Expm1", dtype), [x])])
    exp = builder.apply(Scalar("Neg", dtype), [builder.apply(Scalar("Exp", dtype), [x])])
    by_expm1, by_exp = builder.apply(Scalar("Log", dtype), [expm1]), builder.apply(Scalar("Log1p", dtype), [exp])
    return builder.build([builder.apply(Scalar("Switch", dtype), [near, by_expm1, by_exp])])


#: Scalars that are programs of others.
_COMPOSED = {"Log1mexp": _log1mexp}


def cast_program(source: str, target: str) -> Program:
    """Return the program that makes one dtype another one."""
    return program_of(Cast(get_scalar_type(target)), [source])
