"""Lists scalar operations that take no longer than reading their operands, and operations that take much longer."""

from __future__ import annotations

from optdb.codegen.scalars.program import ScalarProgram

CHEAP = frozenset(
    {
        *("Add", "Mul", "Sub", "Neg", "Sqr", "Abs", "Sgn", "EQ", "NEQ", "LT", "LE", "GT", "GE"),
        *("AND", "OR", "XOR", "Invert", "InRange", "IsNan", "IsInf"),
        *("Maximum", "Minimum", "Clip", "Switch", "Second", "Identity", "Cast"),
    }
)
#: Operations that are cheap if the device divides quickly, or if its items wait for memory.
DIVISIONS = frozenset({"TrueDiv", "Inv"})
#: Operations that are cheap if they are applied to each result of a reduction, or if a GPU's items wait for memory.
QUICK = DIVISIONS | {"Sqrt"}
#: Functions that take longer than storing and loading a number, on GPUs and on CPUs.
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
    """Return whether a program can be computed repeatedly, because its operations are all cheap or in `besides`."""
    return all(scalar.name in CHEAP or scalar.name in besides for scalar, _ in program.steps)
