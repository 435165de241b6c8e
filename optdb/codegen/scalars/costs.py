"""Which scalar operations take no longer than reading their operands, and which take much longer."""

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
#: Functions that take longer than storing and loading a number: on a GPU, and on a CPU.
SLOW_ON_GPU = frozenset(
    {
        *("Erf", "Erfc", "Erfcx", "Erfinv", "Erfcinv", "Gamma", "GammaLn", "Psi", "TriGamma"),
        *(
            "GammaInc",
            "GammaIncC",
            "GammaL",
            "GammaU",
            "Chi2SF",
            "I0",
            "I0e",
            "I1",
            "I1e",
            "Iv",
            "Ive",
            "J0",
            "J1",
            "Jv",
        ),
    }
)
SLOW_ON_CPU = SLOW_ON_GPU | {
    *("Exp", "Exp2", "Expm1", "Log", "Log2", "Log10", "Log1p", "Pow", "Sin", "Cos", "Tan", "Sinh", "Cosh", "Tanh"),
    *("ArcSin", "ArcCos", "ArcTan", "ArcTan2", "Angle", "ArcSinh", "ArcCosh", "ArcTanh"),
    *("ScalarSigmoid", "ScalarSoftplus", "XlogX", "XlogY0"),
}


def is_cheap(program: ScalarProgram, besides: frozenset[str] = frozenset()) -> bool:
    """Return whether all operations of a program are cheap or in `besides`, so that it may be computed repeatedly."""
    return all(scalar.name in CHEAP or scalar.name in besides for scalar, _ in program.steps)
