"""Which scalar operations take no longer than reading their operands; kernels may compute these more than once."""

from __future__ import annotations

from optdb.codegen.scalars.program import ScalarProgram

CHEAP = frozenset(
    {
        *("Add", "Mul", "Sub", "Neg", "Sqr", "Abs", "Sgn", "EQ", "NEQ", "LT", "LE", "GT", "GE"),
        *("AND", "OR", "XOR", "Invert", "InRange", "IsNan", "IsInf"),
        *("Maximum", "Minimum", "Clip", "Switch", "Second", "Identity", "Cast"),
    }
)
#: Operations that are cheap where a device divides quickly, or waits for memory anyway.
DIVISIONS = frozenset({"TrueDiv", "Inv"})
#: Operations that are cheap for each result of a reduction, or where a GPU waits for memory.
QUICK = DIVISIONS | {"Sqrt"}


def is_cheap(program: ScalarProgram, besides: frozenset[str] = frozenset()) -> bool:
    """Return whether all operations of a program are cheap or in `besides`."""
    return all(scalar.name in CHEAP or scalar.name in besides for scalar, _ in program.steps)
