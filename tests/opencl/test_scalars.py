"""Every scalar op that has OpenCL C, against what the host computes, built as one program."""

from __future__ import annotations

import functools
from itertools import product

import numpy as np
import pytest
import theano
from theano.gof.graph import io_toposort
from theano.tensor.elemwise import Elemwise
from theano.tensor.nnet.sigm import sigmoid, softplus

import optdb  # noqa: F401
from optdb.codegen.scalars.code import scalar_code
from optdb.codegen.scalars.types import C_TYPES, NoCode, literal
from optdb.host.api import scalars as host
from optdb.opencl.scalar_programs import program_of, signature
from tests.opencl.lifted import both, lifted_function, ops_of

cl = pytest.importorskip("pyopencl")

scalar = theano.scalar
INTS = ["int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"]
FLOATS = ["float32", "float64"]
STEP = 7  # the values below, paired with each other at all distances

UNARY_FLOAT = [
    "arccos", "arccosh", "arcsin", "arcsinh", "arctan", "arctanh", "ceil", "cos", "cosh", "deg2rad", "erf", "erfc",
    "exp", "exp2", "expm1", "floor", "gamma", "inv", "log", "log10", "log1p", "log2", "rad2deg", "sin", "sinh",
    "sqrt", "tan", "tanh", "trunc",
]  # fmt: skip
BINARY = ["add", "mul", "sub", "true_div", "int_div", "mod", "maximum", "minimum", "eq", "neq", "lt", "le", "gt", "ge"]
SPECIAL = [float("nan"), float("inf"), -float("inf"), -0.0]


def values(dtype, seed):
    """Return numbers of a dtype with its ends among them."""
    rng = np.random.default_rng(seed)
    if dtype == "bool":
        return rng.integers(0, 2, 64).astype(bool)
    if dtype.startswith("float"):
        some = [*SPECIAL, 0.0, 1.0, -1.0, 0.5, -0.5, 1.5, 2.5, 20.0, -20.0]
        return np.concatenate([some, rng.uniform(-5, 5, 64 - len(some))]).astype(dtype)
    info = np.iinfo(dtype)
    some = [info.min, info.max, 0, 1, 2, 3, info.max - 1]
    return np.concatenate([np.array(some, dtype), rng.integers(0, 9, 64 - len(some)).astype(dtype)])


def cases():
    for dtype in [*FLOATS, "int8", "int64", "uint32", "bool"]:
        for name in UNARY_FLOAT:
            if dtype not in ("int64", "uint64") or name not in ("gamma", "cos", "sin", "tan"):
                yield name, (dtype,)
        yield "isnan", (dtype,)
        yield "isinf", (dtype,)
        yield "identity", (dtype,)
        yield "abs_", (dtype,)
        yield "sqr", (dtype,)
        if dtype != "bool":
            yield "neg", (dtype,)
            yield "sgn", (dtype,)
        if dtype not in FLOATS:
            yield "invert", (dtype,)
        for target in [*INTS, *FLOATS, "bool"]:
            yield f"convert_to_{target}", (dtype,)
    for dtype in FLOATS:
        yield "gammaln", (dtype,)
        yield "round_half_to_even", (dtype,)
        yield "round_half_away_from_zero", (dtype,)
    pairs = [(a, a) for a in [*INTS, *FLOATS] if a not in ("int16", "uint16")]
    pairs += [("int8", "uint8"), ("int32", "float32"), ("uint64", "int64"), ("float32", "float64"), ("bool", "float32")]
    for name, pair in product(BINARY, pairs):
        yield name, pair
    yield from product(["add", "mul", "maximum", "minimum", "eq", "and_", "or_", "xor"], [("bool", "bool")])
    yield from product(["and_", "or_", "xor"], [(a, a) for a in ("int8", "uint16", "int64")])
    yield from product(["pow", "arctan2"], [(a, a) for a in FLOATS])
    yield from product(["second"], pairs)
    for dtype in ["int8", "int64", "float32", "float64"]:
        yield "clip", (dtype, dtype, dtype)
        yield "switch", ("bool", dtype, dtype)
        yield "switch", (dtype, "float32", dtype)
        yield "inopenrange", (dtype, dtype, dtype)
        yield "inclosedrange", (dtype, dtype, dtype)
        yield "add", (dtype, dtype, dtype)
        yield "mul", (dtype, dtype, dtype, dtype)


CASES = list(dict.fromkeys(cases()))


@functools.cache
def opencl():
    """Return a context and a queue on the first device that builds a program, processors of their own first."""
    devices = [device for platform in cl.get_platforms() for device in platform.get_devices()]
    for device in sorted(devices, key=lambda device: "Oclgrind" in device.platform.name):
        try:
            context = cl.Context([device])
            cl.Program(context, "kernel void f(global int *x) { x[0] = 1; }").build()
        except cl.Error:
            continue
        return context, cl.CommandQueue(context)
    pytest.skip("no OpenCL device")


def block(op, dtypes, places, result, width):
    """Return code that applies one op to arrays that lie at `places` of one buffer, `width` elements at a time."""
    out = host.scalar_node(op, dtypes).outputs[0].type.dtype
    types = [C_TYPES[d] + ("" if width == 1 else str(width)) for d in (*dtypes, out)]
    names = [f"i{i}[n]" for i in range(len(dtypes))]
    lines = [f"global {kind} *i{i} = (global {kind} *)(data + {places[i]});" for i, kind in enumerate(types[:-1])]
    lines.append(f"global {types[-1]} *z = (global {types[-1]} *)(data + {result});")
    if width > 1:
        lines += [f"const {kind} v{i} = {name};" for i, (kind, name) in enumerate(zip(types, names))]
        names = [f"v{i}" for i in range(len(dtypes))]
    code = scalar_code(program_of(op, dtypes), names, ["z[n]"], width=width)
    return code.helpers, "{\n" + "\n".join([*lines, code.once, code.statements]) + "\n}\n", out


def device_results(ops, width=1):
    """Compute all ops in one kernel: building one costs less than building hundreds."""
    context, queue = opencl()
    helpers, blocks, outs, data = {}, [], [], b""
    for op, arrays in ops:
        places = []
        for array in arrays:
            places.append(len(data))
            data += array.tobytes() + b"\0" * (-array.nbytes % 128)
        helper, body, out = block(op, [str(a.dtype) for a in arrays], places, len(data), width)
        outs.append((op, arrays, out, len(data)))
        data += b"\0" * (8 * len(arrays[0]) + -8 * len(arrays[0]) % 128)
        blocks.append(body)
        for function in helper.split("\n}\n"):
            if function.strip():
                helpers[function] = f"{function}\n}}\n"
    kernel = "kernel void every_op(global char *data) {\nsize_t n = get_global_id(0);\n" + "".join(blocks) + "}"
    program = cl.Program(context, "#pragma OPENCL FP_CONTRACT OFF\n" + "".join(helpers.values()) + kernel).build()
    flags = cl.mem_flags.READ_WRITE | cl.mem_flags.COPY_HOST_PTR
    buffer = cl.Buffer(context, flags, hostbuf=bytearray(data))
    cl.Kernel(program, "every_op")(queue, (len(outs[0][1][0]) // width,), (1,), buffer)
    result = np.empty(len(data), np.uint8)
    cl.enqueue_copy(queue, result, buffer)
    for op, arrays, out, place in outs:
        yield op, arrays, np.frombuffer(result.data, out, len(arrays[0]), place)


def host_result(op, arrays):
    if isinstance(op, host.Cast):
        return arrays[0].astype(op.o_type.dtype)
    if len(arrays) > 2 and isinstance(op, host.Add | host.Mul):
        with np.errstate(all="ignore"):
            return functools.reduce(getattr(np, op.nfunc_spec[0]), arrays)
    inputs = [theano.tensor.TensorType(a.dtype, (False,))() for a in arrays]
    node = theano.tensor.Elemwise(op).make_node(*inputs)
    storage = [[None]]
    with np.errstate(all="ignore"):
        node.op.prepare_node(node, None, None, "py")
        node.op.perform(node, arrays, storage)
    return storage[0][0]


def arguments(name, dtypes):
    arrays = [values(dtype, i) for i, dtype in enumerate(dtypes)]
    if len(arrays) > 1 and all(d.startswith("float") for d in dtypes):
        arrays[1] = np.roll(arrays[1], STEP)
    if name == "clip":
        arrays[1], arrays[2] = arrays[2], arrays[0][::-1].copy()
    if name.startswith("convert_to_") and dtypes[0].startswith("float") and not name.endswith(("bool", "32", "64")):
        arrays[0] = np.random.default_rng(3).uniform(-100, 100, 64).astype(dtypes[0])
    if name.startswith("convert_to_") and "int" in name and dtypes[0].startswith("float"):
        arrays[0] = np.random.default_rng(3).uniform(0, 100, 64).astype(dtypes[0])
    if "range" in name:  # what is in no order is in a range for the host's Python, and not for its C
        arrays = [np.nan_to_num(array, posinf=9, neginf=-9) for array in arrays]
    return arrays


def agree(got, want, what):
    assert got.dtype == want.dtype, what
    if got.dtype.kind != "f":
        np.testing.assert_array_equal(got, want, err_msg=str(what))
        return
    close = 3e-6 if got.dtype == "float32" else 1e-13
    np.testing.assert_allclose(got, want, rtol=close, atol=close if what[0] in LOOSE else 0, err_msg=str(what))


#: Near their zeros these lose digits on the host or on the device.
LOOSE = {"cos", "sin", "tan", "gammaln", "pow", "erfc", "log", "log2", "log10", "mod"}


@pytest.mark.parametrize("width", [1, 16])
def test_every_op_agrees_with_the_host(width):
    ops = [(getattr(scalar, name), arguments(name, dtypes)) for name, dtypes in CASES]
    wrong = []
    for (name, dtypes), (op, arrays, got) in zip(CASES, device_results(ops, width), strict=True):
        try:
            want = host_result(op, arrays)
            agree(got, with_poles(want, *arrays) if name == "gamma" else want, (name, dtypes))
        except AssertionError as error:
            wrong.append(str(error))
    assert not wrong, "\n".join(wrong)


def with_poles(gamma, x):
    """Return the gamma function of some numbers with what C99 and SciPy from 1.15 on have at its poles."""
    at_zero = np.copysign(np.inf, x.astype(gamma.dtype))
    return np.where(x == 0, at_zero, np.where((x < 0) & (np.floor(x) == x), gamma.dtype.type("nan"), gamma))


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
    names = [name for name in UNARY_FLOAT if name not in ("gamma", "deg2rad", "rad2deg")]
    ops = [(getattr(scalar, name), [x]) for name in names] + [(scalar.pow, [x, y]), (scalar.arctan2, [x, y])]
    together, alone = list(device_results(ops, 16)), list(device_results(ops))
    close = 1e-5 if dtype == "float32" else 1e-12
    for (op, _, got), (_, _, want) in zip(together, alone, strict=True):
        np.testing.assert_allclose(got, want, rtol=close, atol=4 * small, err_msg=str(op))


def test_integer_powers_wrap_and_negative_exponents_give_zero():
    x = np.array([0, 1, -1, -1, 2, 3, 7, -2, 5], np.int32)
    y = np.array([0, -3, -3, -2, -1, 4, 30, 31, 0], np.int32)
    ((_, _, got),) = device_results([(scalar.pow, [x, y])])
    want = [0**0, 1, -1, 1, 0, 81, np.int32((7**30 + 2**31) % 2**32 - 2**31), -(2**31), 1]
    assert got.tolist() == want


def test_casts_to_whole_numbers_truncate_and_wrap_as_on_the_host():
    x = np.array([-1.0, -1.9, 1.9, 300.0, -300.7, 255.0], np.float64)
    targets = ["int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"]
    ops = [(getattr(scalar, f"convert_to_{target}"), [x]) for target in targets]
    for target, (_, _, got) in zip(targets, device_results(ops), strict=True):
        want = x.astype("int64").astype(target)
        np.testing.assert_array_equal(got, want, err_msg=target)


def test_softplus_sigmoid_softsign_and_xlogx():
    x = np.linspace(-60, 60, 121)
    y = np.linspace(1, 3, 121)
    ops = [
        (host.ScalarSoftplus(scalar.upgrade_to_float), [x], np.logaddexp(0, x)),
        (host.ScalarSigmoid(scalar.upgrade_to_float), [x], 1 / (1 + np.exp(-x))),
        (host.ScalarSoftsign(scalar.upgrade_to_float), [x], x / (1 + abs(x))),
        (host.XlogX(scalar.upgrade_to_float), [x + 60], (x + 60) * np.log(np.where(x > -60, x + 60, 1))),
        (host.XlogY0(scalar.upgrade_to_float), [x, y], x * np.log(y)),
    ]
    results = device_results([(op, arrays) for op, arrays, _ in ops])
    for (op, _, want), (_, _, got) in zip(ops, results, strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-13, atol=1e-300, err_msg=str(op))


def test_products_without_zeros():
    op = host.MulWithoutZeros(scalar.upcast_out, name="mul_without_zeros")
    x, y = np.array([0, 2, 3, 0, 100]), np.array([4, 0, 5, 0, 100])
    want = [4, 2, 15, 0, 10000]
    ((_, _, whole), (_, _, wide)) = device_results([(op, [x.astype("int8"), y.astype("int8")]), (op, [x * 1.0, y])])
    assert whole.tolist() == [*want[:4], np.int64(10000).astype("int8")] and wide.tolist() == want


def test_fast_sigmoid_agrees_with_the_host():
    op = host.UltraFastScalarSigmoid(scalar.upgrade_to_float)
    x = np.linspace(-8, 8, 33)
    ((_, _, got),) = device_results([(op, [x])])
    np.testing.assert_allclose(got, [op.impl(value) for value in x], rtol=1e-14)


def test_a_composite_is_spelled_out_with_exact_constants():
    x, y = scalar.float64("x"), scalar.int32("y")
    inner = scalar.Composite([x, y], [scalar.exp(x * 0.1) + y, scalar.sqr(x)])
    z = inner(x, y)
    outer = scalar.Composite([x, y], [scalar.switch(scalar.lt(z[0], 1.1), z[0], z[1] - 1 / 3)])
    assert len(io_toposort(outer.inputs, outer.outputs)) >= 4
    a, b = np.linspace(-2, 2, 64), np.arange(-32, 32, dtype="int32")
    ((_, _, got),) = device_results([(outer, [a, b])])
    first = np.exp(a * 0.1) + b
    np.testing.assert_allclose(got, np.where(first < 1.1, first, np.square(a) - 1 / 3), rtol=1e-14, atol=1e-14)


def test_a_cast_to_half_rounds_and_other_steps_do_not():
    x = scalar.float32("x")
    rounded = scalar.Composite([x], [scalar.cast(scalar.cast(x, "float16"), "float32")])
    values = np.array([1 / 3, 70000.0, 1e-8, 2049.0, -1 / 3], np.float32)
    ((_, _, got),) = device_results([(rounded, [values])])
    with np.errstate(over="ignore"):
        np.testing.assert_array_equal(got, values.astype("float16").astype("float32"))


@pytest.mark.parametrize("dtype", [d for d in C_TYPES if d not in ("bool", "float16", "complex64", "complex128")])
def test_literals_are_exact(dtype):
    ends = np.finfo(dtype) if dtype.startswith("float") else np.iinfo(dtype)
    numbers = [0, 1, ends.min, ends.max] + (
        [0.1, -1e-310, np.inf, -np.inf, np.nan] if dtype.startswith("float") else []
    )
    numbers = np.array(numbers, dtype)
    context, queue = opencl()
    lines = "\n".join(f"z[{i}] = {literal(value, dtype)};" for i, value in enumerate(numbers))
    program = cl.Program(context, f"kernel void f(global {C_TYPES[dtype]} *z) {{ {lines} }}").build()
    z = np.zeros_like(numbers)
    out = cl.Buffer(context, cl.mem_flags.READ_WRITE, z.nbytes)
    cl.Kernel(program, "f")(queue, (1,), None, out)
    cl.enqueue_copy(queue, z, out)
    np.testing.assert_array_equal(z, numbers)


class Odd(scalar.UnaryScalarOp):
    """An op that the device has not."""

    def impl(self, x):
        return x % 2

    def c_code(self, node, name, inputs, outputs, sub):
        return f"{outputs[0]} = fmod({inputs[0]}, 2);"


def test_what_has_no_code_says_why():
    assert signature(scalar.add, ("float32", "float32")).reason is None
    assert signature(scalar.add, ("complex64", "complex64")).reason is None
    odd = Odd(scalar.same_out, name="odd")
    assert "Odd" in signature(odd, ("float32",)).reason
    x = scalar.float32("x")
    assert "Odd" in signature(scalar.Composite([x], [odd(x) + 1]), ("float32",)).reason
    with pytest.raises(NoCode, match="complex"):
        scalar_code(program_of(scalar.erf, ["complex128"]), ["x"], ["z"])


def test_dtypes_in_between_are_told():
    assert "float64" in signature(scalar.true_div, ["int8", "int8"]).computed
    assert signature(scalar.add, ["float32", "float32"]).computed == {"float32"}


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int64"])
def test_functions_of_floats_with_whole_numbers_as_results(dtype):
    """As where an op is made to overwrite its input: computed in double precision, and cut off."""
    names = [*(name for name in UNARY_FLOAT if name not in ("arctanh", "arccos", "arcsin")), "sigmoid", "softplus"]
    makers = {**vars(scalar), "sigmoid": sigmoid.scalar_op, "softplus": softplus.scalar_op}
    x = theano.tensor.vector("x", dtype=dtype)
    ops = [type(makers[name])(scalar.transfer_type(0), name=name) for name in names]
    values = np.array([1, 2, 3, 4, 5, *[1] * 30], dtype)
    results, _, kinds = both([x], [Elemwise(op)(x) for op in ops], [values])
    assert Elemwise not in kinds
    for op, got in zip(ops, results, strict=True):
        want = np.array([op.impl(float(value)) for value in values]).astype(dtype)
        assert got.dtype == dtype
        np.testing.assert_array_equal(got, want, str(op))


def test_one_over_a_whole_number_of_zero_ends_no_process():
    x = theano.tensor.lvector("x")
    inverse = Elemwise(scalar.Inv(scalar.transfer_type(0), name="inv"))(x)
    computed = lifted_function([x], [inverse])
    assert Elemwise not in ops_of(computed)
    (result,) = computed(np.array([1, 0, -1]))
    assert np.asarray(result).tolist()[::2] == [1, -1]
