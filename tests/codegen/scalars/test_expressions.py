"""Scalar ops give NumPy's results, computed one number at a time and in vectors."""

from __future__ import annotations

import numpy as np
import pyopencl as cl
import pytest
import scipy.special

from optdb.codegen.scalars.code import computed_dtypes, scalar_code
from optdb.codegen.scalars.program import Number, ProgramBuilder, Scalar, ScalarProgram
from optdb.codegen.scalars.types import C_TYPES, NoCode, literal
from tests.codegen.scalars.device_results import device_results, of_scalar, opencl, values, with_poles

FLOATS = ["float32", "float64"]
INTS = ["int8", "uint8", "int32", "uint32", "int64", "uint64"]
STEP = 7  # the values of the second operand are rotated by this many positions


def gamma(x):
    return with_poles(scipy.special.gamma(x), x)


#: Functions of floats.
FUNCTIONS = {
    **{"ArcCos": np.arccos, "ArcCosh": np.arccosh, "ArcSin": np.arcsin, "ArcSinh": np.arcsinh, "ArcTan": np.arctan},
    **{"ArcTanh": np.arctanh, "Ceil": np.ceil, "Cos": np.cos, "Cosh": np.cosh, "Deg2Rad": np.deg2rad},
    **{"Erf": scipy.special.erf, "Erfc": scipy.special.erfc, "Exp": np.exp, "Exp2": np.exp2, "Expm1": np.expm1},
    **{"Floor": np.floor, "Gamma": gamma, "Inv": np.reciprocal, "Log": np.log, "Log10": np.log10, "Log1p": np.log1p},
    **{"Log2": np.log2, "Rad2Deg": np.rad2deg, "RoundHalfToEven": np.rint, "Sin": np.sin, "Sinh": np.sinh},
    **{"Sqr": np.square, "Sqrt": np.sqrt, "Tan": np.tan, "Tanh": np.tanh, "Trunc": np.trunc, "Abs": np.abs},
    **{"Neg": np.negative, "Sgn": np.sign, "Identity": np.positive},
}
PAIRS = {"Add": np.add, "Mul": np.multiply, "Sub": np.subtract, "Maximum": np.maximum, "Minimum": np.minimum}
COMPARISONS = {"EQ": np.equal, "NEQ": np.not_equal, "LT": np.less, "LE": np.less_equal}
COMPARISONS |= {"GT": np.greater, "GE": np.greater_equal}
BITS = {"AND": np.bitwise_and, "OR": np.bitwise_or, "XOR": np.bitwise_xor}
#: Functions that lose digits near their zeros.
LOOSE = {"Cos", "Sin", "Tan", "Erfc", "Log", "Log2", "Log10", "Pow", "Mod"}


def cases():
    """Yield, for each case, a name, a program, arrays, and NumPy's result."""
    for dtype in FLOATS:
        x, y = values(dtype), np.roll(values(dtype, 1), STEP)
        for name, function in FUNCTIONS.items():
            yield name, of_scalar(name, [x]), [x], function(x)
        for name, function in {**PAIRS, "TrueDiv": np.divide, "Pow": np.power, "ArcTan2": np.arctan2}.items():
            yield name, of_scalar(name, [x, y]), [x, y], function(x, y)
        yield "IsNan", of_scalar("IsNan", [x], "bool"), [x], np.isnan(x)
        yield "IsInf", of_scalar("IsInf", [x], "bool"), [x], np.isinf(x)
        yield "Switch", of_scalar("Switch", [x, y, x], dtype), [x, y, x], np.where(x != 0, y, x)
    for dtype in INTS:
        x, y = values(dtype), np.roll(values(dtype, 1), STEP)
        for name, function in {**PAIRS, **BITS}.items():
            yield name, of_scalar(name, [x, y]), [x, y], function(x, y)
        yield "Invert", of_scalar("Invert", [x]), [x], ~x
        yield "TrueDiv", of_scalar("TrueDiv", [x, y], "float64"), [x, y], np.true_divide(x, y, dtype="float64")
        positive = np.maximum(y, 1)
        yield "IntDiv", of_scalar("IntDiv", [x, positive]), [x, positive], x // positive
        yield "Mod", of_scalar("Mod", [x, positive]), [x, positive], x % positive
        in_floats = of_scalar("Sqrt", [positive], "float64")
        yield "Sqrt", in_floats, [positive], np.sqrt(positive.astype("float64"))
    for dtype in [*FLOATS, *INTS]:
        x, y = values(dtype), np.roll(values(dtype, 1), STEP)
        for name, function in COMPARISONS.items():
            yield name, of_scalar(name, [x, y], "bool"), [x, y], function(x, y)
        small = np.nan_to_num(x, posinf=9, neginf=-9) if dtype in FLOATS else x
        low, high = np.full_like(small, 1), np.full_like(small, 3)
        yield "Clip", of_scalar("Clip", [small, low, high]), [small, low, high], np.clip(small, 1, 3)
        opened = of_scalar("InRange", [small, low, high], "bool", openlow=True, openhi=True)
        yield "InRange", opened, [small, low, high], (small > 1) & (small < 3)
        half_open = of_scalar("InRange", [small, low, high], "bool", openlow=False, openhi=True)
        yield "InRange", half_open, [small, low, high], (small >= 1) & (small < 3)
    flags, others = values("bool"), values("bool", 1)
    for name, function in {**BITS, "Add": np.logical_or, "Mul": np.logical_and, "Maximum": np.logical_or}.items():
        yield name, of_scalar(name, [flags, others]), [flags, others], function(flags, others)
    whole, wide = values("int32"), values("float32")
    yield "Add", of_scalar("Add", [whole, wide], "float64"), [whole, wide], whole + wide
    ordered = of_scalar("LT", [values("int64"), values("uint64")], "bool")
    yield "LT", ordered, [values("int64"), values("uint64")], values("int64") < values("uint64").astype("float64")


@pytest.mark.parametrize("width", [1, 16])
def test_as_numpy_has_them(width):
    with np.errstate(all="ignore"):
        every = list(cases())
    wrong = []
    got = device_results([(program, arrays) for _, program, arrays, _ in every], width)
    for (name, program, _, want), result in zip(every, got, strict=True):
        exact = result.dtype.kind != "f"
        close = {"rtol": 0} if exact else {"rtol": 3e-6 if result.dtype == "float32" else 1e-13}
        atol = close["rtol"] if name in LOOSE else 0
        try:
            np.testing.assert_allclose(result, want.astype(result.dtype), **close, atol=atol)
        except AssertionError as error:
            wrong.append(f"{name} of {program.dtypes}: {error}")
    assert not wrong, "\n".join(wrong)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", FLOATS)
def test_no_lane_depends_on_its_neighbours(dtype):
    rng = np.random.default_rng(7)
    small = np.finfo(dtype).tiny / 8
    special = np.array([0, -0.0, 1, -1, 2, np.inf, -np.inf, np.nan, small, 1e30, 0.5], dtype)
    x, y = rng.uniform(-20, 20, (2, 2048)).astype(dtype)
    x[::3] = rng.integers(0, 12, len(x[::3]))
    for array in (x, y):
        array[rng.random(len(array)) < 0.25] = 2
        some = rng.random(len(array)) < 0.2
        array[some] = rng.choice(special, some.sum())
    names = [name for name in FUNCTIONS if name not in ("Gamma", "Deg2Rad", "Rad2Deg")]
    cases = [(of_scalar(name, [x]), [x]) for name in names]
    cases += [(of_scalar(name, [x, y]), [x, y]) for name in ("Pow", "ArcTan2")]
    close = 1e-5 if dtype == "float32" else 1e-12
    for (program, _), got, want in zip(cases, device_results(cases, 16), device_results(cases), strict=True):
        np.testing.assert_allclose(got, want, rtol=close, atol=4 * small, err_msg=str(program))


def test_integer_powers_wrap_and_negative_exponents_give_zero():
    x = np.array([0, 1, -1, -1, 2, 3, 7, -2, 5], np.int32)
    y = np.array([0, -3, -3, -2, -1, 4, 30, 31, 0], np.int32)
    (got,) = device_results([(of_scalar("Pow", [x, y]), [x, y])])
    want = [0**0, 1, -1, 1, 0, 81, np.int32((7**30 + 2**31) % 2**32 - 2**31), -(2**31), 1]
    assert got.tolist() == want


def test_casts_to_whole_numbers_truncate_and_wrap():
    x = np.array([-1.0, -1.9, 1.9, 300.0, -300.7, 255.0], np.float64)
    targets = ["int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"]
    got = device_results([(of_scalar("Cast", [x], target), [x]) for target in targets])
    for target, result in zip(targets, got, strict=True):
        np.testing.assert_array_equal(result, x.astype("int64").astype(target), err_msg=target)


def test_softplus_sigmoid_softsign_and_xlogx():
    x, y = np.linspace(-60, 60, 121), np.linspace(1, 3, 121)
    cases = [
        ("ScalarSoftplus", [x], np.logaddexp(0, x)),
        ("ScalarSigmoid", [x], 1 / (1 + np.exp(-x))),
        ("ScalarSoftsign", [x], x / (1 + abs(x))),
        ("XlogX", [x + 60], (x + 60) * np.log(np.where(x > -60, x + 60, 1))),
        ("XlogY0", [x, y], x * np.log(y)),
    ]
    results = device_results([(of_scalar(name, arrays), arrays) for name, arrays, _ in cases])
    for (name, _, want), got in zip(cases, results, strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-13, atol=1e-300, err_msg=name)


def test_products_without_zeros():
    x, y = np.array([0, 2, 3, 0, 100]), np.array([4, 0, 5, 0, 100])
    want = [4, 2, 15, 0, 10000]
    narrow, floats = [x.astype("int8"), y.astype("int8")], [x * 1.0, y]
    whole, wide = device_results([(of_scalar("MulWithoutZeros", arrays), arrays) for arrays in (narrow, floats)])
    assert whole.tolist() == [*want[:4], np.int64(10000).astype("int8")] and wide.tolist() == want


def test_a_cast_to_half_rounds_and_other_steps_do_not():
    x = np.array([1 / 3, 70000.0, 1e-8, 2049.0, -1 / 3], np.float32)
    builder = ProgramBuilder(["float32"])
    half = builder.apply(Scalar("Cast", "float16"), [0])
    program = builder.build([builder.apply(Scalar("Cast", "float32"), [half])])
    (got,) = device_results([(program, [x])])
    with np.errstate(over="ignore"):
        np.testing.assert_array_equal(got, x.astype("float16").astype("float32"))


def test_steps_that_are_alike_are_computed_once_with_exact_constants():
    x = np.linspace(-2, 2, 64)
    builder = ProgramBuilder(["float64"])
    tenth = Number.of(0.1, "float64")
    scaled = [builder.apply(Scalar("Mul", "float64"), [0, tenth]) for _ in range(2)]
    program = builder.build([builder.apply(Scalar("Add", "float64"), scaled)])
    assert len(program.steps) == 2
    (got,) = device_results([(program, [x])])
    np.testing.assert_array_equal(got, x * 0.1 + x * 0.1)


def test_programs_compare_to_the_last_bit():
    def adding(number):
        builder = ProgramBuilder(["float32"])
        return builder.build([builder.apply(Scalar("Add", "float32"), [0, Number.of(number, "float32")])])

    assert adding(np.nan) == adding(np.nan) and adding(0.0) != adding(-0.0)
    x = [np.zeros(1, "float32")] * 3
    opened, closed = (of_scalar("InRange", x, "bool", openlow=ends, openhi=ends) for ends in (True, False))
    assert opened != closed and hash(opened) != hash(closed)
    assert "2 add" in str(builder_of_two()) and builder_of_two().out_dtypes == ("float32", "float32")


def builder_of_two():
    builder = ProgramBuilder(["float32"])
    first = builder.apply(Scalar("Add", "float32"), [0, 0])
    return builder.build([first, builder.apply(Scalar("Add", "float32"), [first, 0])])


@pytest.mark.parametrize("dtype", [d for d in C_TYPES if d not in ("bool", "float16", "complex64", "complex128")])
def test_literals_are_exact(dtype):
    ends = np.finfo(dtype) if dtype.startswith("float") else np.iinfo(dtype)
    numbers = [0, 1, ends.min, ends.max]
    numbers += [0.1, -1e-310, np.inf, -np.inf, np.nan] if dtype.startswith("float") else []
    numbers = np.array(numbers, dtype)
    context, queue = opencl()
    lines = "\n".join(f"z[{i}] = {literal(value, dtype)};" for i, value in enumerate(numbers))
    program = cl.Program(context, f"kernel void f(global {C_TYPES[dtype]} *z) {{ {lines} }}").build()
    z = np.zeros_like(numbers)
    out = cl.Buffer(context, cl.mem_flags.READ_WRITE, z.nbytes)
    cl.Kernel(program, "f")(queue, (1,), None, out)
    cl.enqueue_copy(queue, z, out)
    np.testing.assert_array_equal(z, numbers)


def test_what_has_no_code_says_why():
    with pytest.raises(NoCode, match="no OpenCL C for Odd"):
        computed_dtypes(ScalarProgram.of(Scalar("Odd", "float32"), ["float32"]))
    with pytest.raises(NoCode, match="Erf of complex numbers"):
        computed_dtypes(ScalarProgram.of(Scalar("Erf", "complex64"), ["complex64"]))
    with pytest.raises(NoCode, match="use its real part"):
        computed_dtypes(ScalarProgram.of(Scalar("Cast", "float32"), ["complex64"]))
    with pytest.raises(NoCode, match="vectors"):
        scalar_code(ScalarProgram.of(Scalar("Add", "complex64"), ["complex64"] * 2), ["x", "y"], ["z"], width=16)


def test_dtypes_in_between_are_told():
    assert "float64" in computed_dtypes(ScalarProgram.of(Scalar("TrueDiv", "float32"), ["int8", "int8"]))
    assert computed_dtypes(ScalarProgram.of(Scalar("Add", "float32"), ["float32"] * 2)) == {"float32"}


def power(dtype, exponent):
    """Return a program that computes a power of x + x."""
    builder = ProgramBuilder([dtype])
    doubled = builder.apply(Scalar("Add", dtype), [0, 0])
    return builder.build([builder.apply(Scalar("Pow", dtype), [doubled, exponent])])


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("exponent_dtype", ["int8", "float32"])
def test_the_power_of_two_is_a_product(dtype, exponent_dtype):
    program = power(dtype, Number.of(2, exponent_dtype))
    assert "sqr" in str(program) and "pow" not in str(program)
    x = values(dtype)
    (got,) = device_results([(program, [x])])
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(got, np.square(x + x))


@pytest.mark.parametrize("exponent", [3, -2, 0.5, np.nan])
def test_other_powers_stay(exponent):
    assert "pow" in str(power("float32", Number.of(exponent, "float64")))


def test_powers_of_integers_and_of_other_floats_stay():
    assert "pow" in str(power("int32", Number.of(2, "int32")))
    builder = ProgramBuilder(["float32"])
    wide = builder.apply(Scalar("Pow", "float64"), [0, Number.of(2, "int8")])
    assert "pow" in str(builder.build([wide]))
