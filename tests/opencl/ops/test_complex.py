"""Complex numbers on the device agree with NumPy and the host."""

from __future__ import annotations

import numpy as np
import pytest
import theano
import theano.tensor as tt
from hypothesis import given, settings
from hypothesis import strategies as st
from theano.scalar import basic as scalar

import optdb
from optdb.codegen.scalars.code import scalar_code
from optdb.codegen.scalars.program import ProgramBuilder
from optdb.codegen.scalars.types import NoCode, literal
from optdb.opencl.ops.elemwise import OpenCLElemwise
from optdb.opencl.ops.reduce import OpenCLCAReduce
from optdb.opencl.scalar_programs import program_of, signature
from tests.effort import examples
from tests.opencl.layouts import STEPS, device_array, run, shapes, variable
from tests.opencl.lifted import both, lifted_function, ops_of

RNG = np.random.default_rng(11)
COMPLEX = ["complex64", "complex128"]
CLOSE = {"complex64": 3e-6, "complex128": 1e-13, "float32": 1e-6, "float64": 1e-14}

UNARY = {
    **{"neg": np.negative, "sqr": np.square, "inv": np.reciprocal, "conj": np.conj, "identity": np.array},
    **{"real": np.real, "imag": np.imag, "abs_": np.abs},
    **{"exp": np.exp, "exp2": np.exp2, "expm1": np.expm1, "sqrt": np.sqrt},
    **{"log": np.log, "log2": np.log2, "log10": np.log10, "log1p": np.log1p},
    **{"sin": np.sin, "cos": np.cos, "tan": np.tan, "sinh": np.sinh, "cosh": np.cosh, "tanh": np.tanh},
    **{"arcsin": np.arcsin, "arccos": np.arccos, "arctan": np.arctan},
    **{"arcsinh": np.arcsinh, "arccosh": np.arccosh, "arctanh": np.arctanh},
    **{"isnan": np.isnan, "isinf": np.isinf},
}
BINARY = {
    **{"add": np.add, "sub": np.subtract, "mul": np.multiply, "true_div": np.divide, "pow": np.power},
    **{"eq": np.equal, "neq": np.not_equal, "second": lambda x, y: y},
}
#: Real and imaginary parts, including infinities and NaN.
ENDS = [0.0, -0.0, 1.0, -2.5, np.inf, -np.inf, np.nan]


def complexes(dtype, shape=(), size=3.0):
    parts = RNG.uniform(-size, size, (2, *shape))
    return (parts[0] + 1j * parts[1]).astype(dtype)


def ends(dtype):
    """Return complex numbers with all pairs of `ENDS` as real and imaginary parts, set without arithmetic."""
    value = np.empty((len(ENDS), len(ENDS)), dtype)
    value.real, value.imag = np.meshgrid(ENDS, ENDS)
    return value.ravel()


def applied(op, *values):
    node = OpenCLElemwise(op)(*map(variable, values)).owner
    (got,) = run(node, [device_array(value) for value in values])
    return got


def all_applied(names, *values):
    """Return the results of scalar ops, by name, computed by one kernel."""
    dtypes = [value.dtype.name for value in values]
    builder = ProgramBuilder(dtypes)
    steps = [program_of(getattr(scalar, name), dtypes) for name in names]
    slots = [slot for step in steps for slot in builder.inline(step, range(len(values)))]
    node = OpenCLElemwise(builder.build(slots)).make_node(*map(variable, values))
    return dict(zip(names, run(node, [device_array(value) for value in values]), strict=True))


def host_result(op, *values):
    node = tt.Elemwise(op).make_node(*[tt.TensorType(v.dtype, (False,) * v.ndim)() for v in values])
    storage = [[None]]
    with np.errstate(all="ignore"):
        node.op.prepare_node(node, None, None, "py")
        node.op.perform(node, list(values), storage)
    return storage[0][0]


def agree(got, want, what, close=None):
    """Compare real and imaginary parts; the tolerance is relative to the magnitude of the whole number."""
    assert got.dtype == want.dtype and got.shape == want.shape, what
    if want.dtype == "bool":
        np.testing.assert_array_equal(got, want, err_msg=str(what))
        return
    close = CLOSE.get(got.dtype.name, 0) if close is None else close
    size = sum(np.abs(np.where(np.isfinite(part), part, 0)) for part in (want.real, want.imag))
    for mine, theirs in ((got.real, want.real), (got.imag, want.imag)):
        with np.errstate(invalid="ignore"):
            near = (mine == theirs) | (np.abs(mine - theirs) <= close * size) | (np.isnan(mine) & np.isnan(theirs))
        assert near.all(), (what, got[~near], want[~near])


@pytest.mark.slow
@pytest.mark.parametrize("dtype", COMPLEX)
def test_functions_of_one(each_device_kind, dtype):
    z = np.concatenate([complexes(dtype, (60,)), complexes(dtype, (20,), 30), complexes(dtype, (20,), 1e-3)])
    z = np.append(z, [1, -1, 1j, -1j, 0.5, 2j]).astype(dtype)
    for name, got in all_applied(UNARY, z).items():
        want = host_result(getattr(scalar, name), z)
        agree(want, UNARY[name](z).astype(want.dtype), name, 1e-12 if dtype == "complex128" else 1e-5)
        loose = {"exp2": 20, "expm1": 10, "log1p": 300, "log": 3, "log2": 3, "log10": 3, "tan": 4}.get(name, 1)
        if name in ("log1p", "expm1"):  # NumPy also loses digits of small numbers
            far = np.abs(z) > 0.1
            got, want = got[far], want[far]
        agree(got, want, name, loose * CLOSE.get(got.dtype.name, 0))


@pytest.mark.parametrize("dtype", COMPLEX)
def test_functions_of_two(each_device_kind, dtype):
    x, y = complexes(dtype, (80,)), complexes(dtype, (80,))
    y[::3] = x[::3]
    y[1::5] = np.arange(16) - 7
    for name, got in all_applied(BINARY, x, y).items():
        want = host_result(getattr(scalar, name), x, y)
        with np.errstate(all="ignore"):
            agree(want, BINARY[name](x, y), name, 1e-12 if dtype == "complex128" else 1e-5)
        agree(got, want, name, CLOSE[dtype] * (20 if name == "pow" else 1))


@pytest.mark.parametrize("dtype", COMPLEX)
def test_ends_of_functions_of_one(each_device_kind, dtype):
    z = ends(dtype)
    names = ["neg", "conj", "real", "imag", "abs_", "sqr", "exp", "sqrt", "log", "isnan", "isinf"]
    for name, got in all_applied(names, z).items():
        with np.errstate(all="ignore"):
            want = UNARY[name](z)
        agree(got, want.astype(host_result(getattr(scalar, name), z).dtype), name)
    got = applied(scalar.angle, z)
    assert got.dtype == "float64"  # the host only supports float64
    np.testing.assert_allclose(got, np.angle(z.astype("complex128")), rtol=1e-14)


@pytest.mark.parametrize("dtype", COMPLEX)
def test_ends_of_functions_of_two(each_device_kind, dtype):
    z = ends(dtype)
    x, y = (part.ravel() for part in np.meshgrid(z, z))
    names = ["add", "sub", "mul", "true_div", "eq", "neq", "second"]
    for name, got in all_applied(names, x, y).items():
        with np.errstate(all="ignore"):
            agree(got, BINARY[name](x, y), name)


@pytest.mark.parametrize("dtype", COMPLEX)
def test_what_is_large_does_not_overflow_on_the_way(dtype):
    large, small = np.finfo(dtype).max / 4, np.finfo(dtype).tiny * 4
    z = np.array([large + large * 1j, large - small * 1j, small + large * 1j, small - small * 1j], dtype)
    for name, got in all_applied(["abs_", "sqrt", "log"], z).items():
        agree(got, UNARY[name](z), name)
    one = np.array([1 + 1j] * 4, dtype)
    agree(applied(scalar.true_div, z, z), np.ones(4, dtype), "true_div")
    agree(applied(scalar.true_div, one[:3], z[:3]), one[:3] / z[:3], "true_div")
    edge = {"complex64": 89.0, "complex128": 710.0}[dtype]
    z = np.array([edge + 1.5j, edge - 1.6j], dtype)  # exp overflows for the real part alone
    agree(applied(scalar.exp, z), np.exp(z), "exp", CLOSE[dtype] * 30)


@pytest.mark.parametrize("dtype", COMPLEX)
def test_inverse_functions_on_branch_cuts(dtype):
    parts = np.array([-3, -1.5, -1, -0.5, -0.0, 0.0, 0.5, 1, 1.5, 3])
    z = np.empty((2, len(parts), 2), dtype)
    z[0].real, z[0].imag = parts[:, None], [0.0, -0.0]
    z[1].real, z[1].imag = [0.0, -0.0], parts[:, None]
    z = z.ravel()
    names = ["arcsin", "arccos", "arctan", "arcsinh", "arccosh", "arctanh", "sqrt", "log"]
    for name, got in all_applied(names, z).items():
        poles = {"arctan": np.abs(z.imag) == 1, "arctanh": np.abs(z.real) == 1}.get(name, np.zeros(z.shape, bool))
        with np.errstate(all="ignore"):
            want = UNARY[name](z)
        agree(got[~poles], want[~poles], name)
        assert not np.isfinite(got[poles & (z.real * z.imag == 0) & (np.abs(z) == 1)]).any()


def test_tangents_of_large_numbers():
    z = np.array([40 + 1j, 1 + 40j, -300 + 2j, 2 - 800j, 23 + 1e6j])
    for name, got in all_applied(["tan", "tanh"], z).items():
        agree(got, UNARY[name](z), name)


@pytest.mark.slow
def test_numbers_made_of_two(each_device_kind):
    for dtype, made in (("float32", "complex64"), ("float64", "complex128"), ("int8", "complex64")):
        x, y = (RNG.uniform(0, 9, 40).astype(dtype) for _ in range(2))
        agree(applied(scalar.complex, x, y), (x + 1j * y).astype(made), dtype)
        got = applied(scalar.complex_from_polar, x, y)
        agree(got, (x * np.exp(1j * y.astype("float64"))).astype(made), dtype)


@pytest.mark.thorough_cases(
    "cpu-int8",
    "cpu-uint32",
    "cpu-float32",
    "gpu-bool",
    "gpu-int64",
    "gpu-float16",
    "gpu-float64",
)
@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["bool", "int8", "int64", "uint32", "float16", "float32", "float64"])
def test_together_with_real_numbers(each_device_kind, dtype):
    x, z = RNG.integers(0, 5, 40).astype(dtype), complexes("complex64", (40,))
    for name, got in all_applied(["add", "mul", "sub", "true_div", "eq"], z, x).items():
        agree(got, host_result(getattr(scalar, name), z, x), (name, dtype))
    for value in (x, z):
        for name, got in all_applied([f"convert_to_{made}" for made in COMPLEX], value).items():
            agree(got, value.astype(got.dtype), name)
    agree(applied(scalar.switch, x, z, x), np.where(x, z, x).astype(scalar.upcast("complex64", dtype)), dtype)
    agree(applied(scalar.real, x), np.real(x), dtype)
    agree(applied(scalar.imag, x), np.imag(x), dtype)
    if dtype.startswith("float"):
        agree(applied(scalar.angle, -x), np.angle(-x).astype("float64"), dtype, 1e-3 if dtype == "float16" else 1e-6)


@st.composite
def laid_out(draw, dtype, shape):
    value = complexes(dtype, shape)
    return value, device_array(value, [draw(STEPS) for _ in shape])


@pytest.mark.slow
@given(st.data(), st.sampled_from(COMPLEX))
@settings(max_examples=examples(40))
def test_any_layout_and_broadcasting(data, dtype):
    shape = data.draw(shapes())
    narrow = tuple(data.draw(st.sampled_from([1, length])) for length in shape)
    (x, on_x), (y, on_y) = data.draw(laid_out(dtype, shape)), data.draw(laid_out(dtype, narrow))
    pattern = tuple(length == 1 for length in narrow)
    node = OpenCLElemwise(scalar.mul)(variable(x), variable(y, pattern)).owner
    (got,) = run(node, [on_x, on_y])
    agree(got, x * y, shape)
    (got,) = run(OpenCLElemwise(scalar.abs_)(variable(x)).owner, [on_x])
    agree(got, np.abs(x), shape)


@pytest.mark.slow
@given(st.data(), st.sampled_from(COMPLEX), st.sampled_from(["add", "mul"]))
@settings(max_examples=examples(40))
def test_reductions_over_any_axes(data, dtype, name):
    shape = data.draw(shapes())
    axes = data.draw(st.none() | st.sets(st.integers(0, len(shape) - 1)) if shape else st.none())
    value, array = data.draw(laid_out(dtype, shape))
    op = OpenCLCAReduce(getattr(scalar, name), None if axes is None else sorted(axes))
    (got,) = run(op(variable(value)).owner, [array])
    fold = {"add": np.sum, "mul": np.prod}[name]
    want = fold(value.astype("complex128"), axis=None if axes is None else tuple(axes)).astype(dtype)
    size = np.maximum(np.abs(want), 1)
    assert got.dtype == want.dtype and (np.abs(got - want) <= 1e-5 * size).all()


@pytest.mark.parametrize("shape, axis", [((60_003,), None), ((3, 20_001), 1), ((20_001, 3), 0), ((2, 300, 70), (0, 2))])
def test_much_is_folded_in_parts(each_device_kind, shape, axis):
    value = complexes("complex64", shape)
    for array in (device_array(value), device_array(value, [-1] * value.ndim)):
        (got,) = run(OpenCLCAReduce(scalar.add, axis)(variable(value)).owner, [array])
        np.testing.assert_allclose(got, value.astype("complex128").sum(axis), rtol=1e-6)


def test_products_that_leave_out_zeros(each_device_kind):
    value = complexes("complex128", (7, 9)) * (RNG.uniform(size=(7, 9)) < 0.5)
    (got,) = run(OpenCLCAReduce(tt.elemwise.mul_without_zeros, 0)(variable(value)).owner, [device_array(value)])
    want = np.where(value == 0, 1, value).prod(axis=0) * (value != 0).any(axis=0)
    np.testing.assert_allclose(got, want, rtol=1e-12)


@pytest.mark.slow
def test_graphs_are_lifted_whole():
    z, x = tt.cmatrix("z"), tt.fmatrix("x")
    a, b = complexes("complex64", (4, 5)), RNG.uniform(1, 2, (4, 5)).astype("float32")
    loss = tt.sqr(abs(tt.exp(z * 0.5) + x)).sum() + tt.real(z.mean(axis=0) * tt.conj(z[1])).sum()
    outputs = [
        *[loss, tt.switch(x > 1.5, z, x), tt.join(0, z, z * 2), tt.eq(z, z.T.T)],
        *[tt.set_subtensor(z[1:3, ::-2], 7 - 2j), tt.inc_subtensor(z[:, 1], z[:, 2]), tt.imag(z.sum(axis=1))],
        *[tt.inc_subtensor(z[[0, 2, 0]], z[:3]), tt.set_subtensor(z[[3, 1]], z[:2]), tt.alloc(z[0], 3, 5)],
        *[tt.inc_subtensor(z[[0, 2, 0], [1, 1, 1]], np.complex64(1j)), z.flatten(), z.prod(axis=1)],
    ]
    got, want, ops = both([z, x], outputs, [a, b])
    for i, (mine, theirs) in enumerate(zip(got, want)):
        assert mine.dtype == theirs.dtype, i
        np.testing.assert_allclose(mine, theirs, rtol=2e-5, err_msg=str(i))
    left = [op for op in ops if issubclass(op, tt.Elemwise | tt.elemwise.CAReduce) and "OpenCL" not in op.__name__]
    assert left == [tt.Elemwise], ops  # this op converts the length by which a mean is divided to a float
    assert not {tt.Join, tt.subtensor.IncSubtensor, tt.subtensor.AdvancedIncSubtensor1} & set(ops)


def test_elementwise_work_is_one_kernel_and_repeats(default):
    z = theano.shared(complexes("complex64", (6, 7)), target="dev0")
    x = theano.shared(RNG.uniform(1, 2, (6, 7)).astype("float32"), target="dev0")
    before, real = z.get_value(), x.get_value()
    new = tt.exp(z * np.complex64(0.1j)) / (z + x)
    f = theano.function([], abs(new), updates=[(z, new)], mode=optdb.mode(theano.Mode("cvm").including("opencl")))
    assert len([node for node in f.maker.fgraph.apply_nodes if isinstance(node.op, OpenCLElemwise)]) == 1
    for _ in range(4):  # the third and fourth calls repeat a plan
        before = np.exp(before * np.complex64(0.1j)) / (before + real)
        np.testing.assert_allclose(f(), np.abs(before), rtol=1e-4)
        np.testing.assert_allclose(z.get_value(), before, rtol=1e-4)


@pytest.mark.slow
def test_inputs_and_loops_go_to_the_device(default):
    z = tt.cmatrix("z")
    half, a = np.complex64(0.5j), complexes("complex64", (6, 7))
    start = tt.zeros_like(z[0])
    states, _ = theano.scan(lambda row, state: state * half + tt.exp(row), sequences=z, outputs_info=start)
    f = theano.function([z], states[-1], mode=theano.Mode("cvm", "fast_run").including("opencl"))
    nodes = f.maker.fgraph.toposort()
    (loop,) = [node for node in nodes if isinstance(node.op, theano.scan_module.scan_op.Scan)]
    body = theano.gof.graph.io_toposort(loop.op.inputs, loop.op.outputs)
    assert body and all(isinstance(node.op, OpenCLElemwise) for node in body), body
    want = np.zeros(7, "complex64")
    for row in a:
        want = want * half + np.exp(row)
    for _ in range(3):
        np.testing.assert_allclose(f(a), want, rtol=1e-5)


def test_what_stays_on_the_host_says_why():
    assert signature(theano.scalar.erf, ("complex64",)).reason == "no OpenCL C for Erf of complex numbers"
    assert "use its real part" in signature(scalar.convert_to_float32, ("complex64",)).reason
    with pytest.raises(NoCode, match="vectors"):
        scalar_code(program_of(scalar.add, ["complex64"] * 2), ["x", "y"], ["z"], width=16)
    z = tt.cmatrix()
    assert ops_of(lifted_function([z], [z.dot(z)])) == [tt.Dot]
    with pytest.raises(TypeError, match="Maximum of complex"):
        OpenCLCAReduce(scalar.maximum, None, "complex64", "complex64")(variable(complexes("complex64", (3,))))


def test_constants_are_exact():
    assert literal(complex(-0.0, np.inf), "complex64") == "(float2)((-0x0.0p+0f), (INFINITY))"
    assert literal(0.1 - 2j, "complex128") == "(double2)(0x1.999999999999ap-4, (-0x1.0000000000000p+1))"
