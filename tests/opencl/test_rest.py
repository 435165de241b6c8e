"""Repeats, assertions, prints and what else is lifted one by one, against the host."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import theano
import theano.tensor as tt
from theano.printing import Print
from theano.tensor.nnet import nnet
from theano.tensor.opt import Assert, MakeVector

from optdb.host.api import ops as host
from optdb.opencl import HostFromOpenCL, OpenCLFromHost
from optdb.opencl.ops.softmax import OpenCLCrossentropyCategorical1Hot, OpenCLCrossentropyCategorical1HotGrad
from optdb.opencl.ops.views import OpenCLAssert, OpenCLFlatten, OpenCLPrint
from tests.opencl.layouts import device_array, run, variable
from tests.opencl.lifted import both, host_function, lifted_function, ops_of

RNG = np.random.default_rng(0)


def numbers(*shape, dtype="float32"):
    return RNG.uniform(-4, 4, shape).astype(dtype)


def compare(inputs, outputs, values, at_home=(), rtol=0.0):
    """Compare with the host; return the classes of the device's ops."""
    got, want, ops = both(inputs, outputs, values, at_home)
    for mine, theirs in zip(got, want, strict=True):
        assert mine.dtype == theirs.dtype
        np.testing.assert_allclose(mine, theirs, rtol=rtol)
    return ops


def leftovers(ops):
    """Return the names of ops that are not the device's, but for those that work on sizes and indexes."""
    sizes = {
        "DeepCopyOp",
        "Shape_i",
        "Elemwise",
        "ARange",
        "MakeVector",
        "ScalarFromTensor",
        "TensorFromScalar",
        "RepeatOp",
    }
    return {op.__name__ for op in ops} - sizes - {op.__name__ for op in ops if op.__name__.startswith("OpenCL")}


def test_made_contiguous():
    x = tt.fmatrix()
    ops = compare([x], [-tt.extra_ops.cpu_contiguous(x.T)], [numbers(2, 3)])
    assert not leftovers(ops)


def test_flattened():
    x = tt.ftensor3()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        outputs = [host.Flatten(n)(y) for n in (1, 2, 3) for y in (x, x.dimshuffle(2, 0, 1))]
    ops = compare([x], outputs, [numbers(2, 3, 4)])
    assert OpenCLFlatten in ops and not leftovers(ops)


def test_repeated_and_tiled():
    x, n, times = tt.fmatrix(), tt.lvector(), tt.lscalar()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        tiled = [host.Tile(2)(x, [2, 3]), host.Tile(3)(x, tt.stack([times, times, times])), host.Tile(2)(x[0], [2, 0])]
    outputs = [
        *tiled,
        tt.tile(x, (2, 3)),
        tt.repeat(x, n, axis=0),
        tt.repeat(x, n[:2], axis=-1),
        tt.extra_ops.RepeatOp(1)(x, times),
        tt.extra_ops.RepeatOp()(x, times),
        tt.repeat(x, 2, axis=1),
    ]
    ops = compare([x, n, times], outputs, [numbers(3, 2), np.array([2, 0, 1]), 2], at_home=[n, times])
    assert "Tile" not in leftovers(ops)
    f = lifted_function([x, n], [tt.repeat(x, n, axis=1)], at_home=[n])
    with pytest.raises(ValueError):
        f(numbers(3, 2), np.array([1, 2, 3]))


def test_differences():
    x, k = tt.fmatrix(), tt.lmatrix()
    outputs = [tt.extra_ops.diff(x, n, axis) for n in (0, 1, 3) for axis in (0, -1)] + [tt.extra_ops.diff(k)]
    ops = compare([x, k], outputs, [numbers(4, 3), np.arange(6).reshape(2, 3) ** 2])
    assert not leftovers(ops)


def test_vectors_of_numbers_that_are_on_the_device():
    x, s, n = tt.fmatrix(), tt.fscalar(), tt.lscalar()
    outputs = [tt.stack([x.sum(), s, x.max()]) * 2, tt.exp(MakeVector("float32")(x.min()))]
    ops = compare([x, s, n], outputs, [numbers(3, 2), np.float32(2), 3], at_home=[s, n], rtol=1e-6)
    assert MakeVector not in ops
    f = lifted_function([x, n], [tt.zeros(tt.stack([n, x.argmax()])) + x[0, 0]], at_home=[n])
    assert MakeVector in ops_of(f)
    np.testing.assert_array_equal(np.asarray(f(np.eye(2, dtype="float32"), 3)[0]), np.ones((3, 0), "float32"))


def test_a_number_comes_home_once():
    x = tt.fvector()
    n = tt.cast(tt.ceil(x.sum()), "int64")
    f = lifted_function([x], [x[:n], x[n:], x * n, tt.zeros((n,)) + x[0]])
    homes = [node for node in f.maker.fgraph.apply_nodes if isinstance(node.op, HostFromOpenCL)]
    assert len(homes) == 1
    value = np.array([0.5, 0.5, 1, 0], "float32")
    for got, want in zip(f(value), [value[:2], value[2:], value * 2, np.full(2, 0.5)], strict=True):
        np.testing.assert_array_equal(np.asarray(got), want)


def test_assertions_hold_or_raise():
    x, n = tt.fmatrix(), tt.lscalar()
    checked = Assert("rows are few")(x, tt.lt(x.shape[0], n), tt.all(x < 9))
    f = lifted_function([x, n], [tt.exp(checked)], at_home=[n])
    assert OpenCLAssert in ops_of(f) and Assert not in ops_of(f)
    value = numbers(2, 3)
    np.testing.assert_allclose(np.asarray(f(value, 3)[0]), np.exp(value), rtol=1e-5)
    for wrong in [(value, 2), (value + 9, 3)]:
        with pytest.raises(AssertionError, match="rows are few"):
            f(*wrong)


def test_an_assertion_about_sizes_stays_on_the_host():
    x, n = tt.fvector(), tt.lscalar()
    few = Assert()(n, x.sum() > 0)
    f = lifted_function([x, n], [x[:few]], at_home=[n])
    assert Assert in ops_of(f)
    np.testing.assert_array_equal(np.asarray(f(np.ones(3, "float32"), 2)[0]), [1, 1])


def test_prints_are_those_of_the_host(capsys):
    x = tt.fmatrix()
    seen = []
    outputs = [
        tt.exp(Print("x is", attrs=["__str__", "shape", "dtype", "min"])(x.T)),
        Print(global_fn=lambda op, value: seen.append(value))(x) * 2,
    ]
    values = [numbers(2, 3)]
    ops = compare([x], outputs, values, rtol=1e-5)
    assert OpenCLPrint in ops and Print not in ops
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) % 2 == 0 and lines[: len(lines) // 2] == lines[len(lines) // 2 :]
    assert "x is shape = (3, 2)" in lines
    assert [type(value) for value in seen] == [np.ndarray] * 2
    np.testing.assert_array_equal(*seen)


@pytest.mark.parametrize("dtype, rtol", [("float32", 1e-6), ("float64", 1e-14), ("float16", 2e-3)])
def test_cross_entropy_of_classes(dtype, rtol):
    p, y = tt.TensorType(dtype, (False, False))(), tt.ivector()
    loss = tt.nnet.crossentropy_categorical_1hot(p, y)
    value = RNG.uniform(0.1, 1, (5, 3)).astype(dtype)
    value[0, 2] = 0
    classes = np.array([2, 0, -1, 1, 1], "int32")
    with np.errstate(divide="ignore"):
        ops = compare([p, y], [loss, theano.grad((loss[1:] ** 2).sum(), p)], [value, classes], at_home=[y], rtol=rtol)
    assert {OpenCLCrossentropyCategorical1Hot, OpenCLCrossentropyCategorical1HotGrad} <= set(ops)
    assert not {nnet.CrossentropyCategorical1Hot, nnet.CrossentropyCategorical1HotGrad} & set(ops)
    f = lifted_function([p, y], [loss], at_home=[y])
    np.testing.assert_array_equal(np.asarray(f(value[:, ::-1], np.zeros(7, "int32"))[0]).shape, (5,))
    for wrong in [[0, 0, 0, 0, 3], [0, 0, -4, 0, 0], [0, 0, 0]]:
        with pytest.raises(IndexError):
            f(value, np.array(wrong, "int32"))


def test_gradients_of_classes_are_checked():
    p, g = numbers(3, 2), numbers(2)
    node = OpenCLCrossentropyCategorical1HotGrad()(variable(g), variable(p), tt.lvector()).owner
    classes = np.array([1, 0])
    (got,) = run(node, [device_array(g, [-2]), device_array(p, [1, -1]), classes])
    want = np.zeros_like(p)
    want[[0, 1], classes] = -g / p[[0, 1], classes]
    np.testing.assert_allclose(got, want, rtol=1e-6)
    with pytest.raises(IndexError, match="3 gradients for 2 rows"):
        run(node, [device_array(numbers(3)), device_array(p[:2]), np.array([0, 0, 0])])


def test_numbers_in_front_of_rows():
    x, v = tt.fmatrix(), tt.fscalar()
    outputs = [nnet.Prepend_scalar_constant_to_each_row(4.0)(x), nnet.Prepend_scalar_to_each_row()(v, x)]
    ops = compare([x, v], outputs, [numbers(3, 2), np.float32(5)])
    assert not leftovers(ops)


NETS = {
    "sigmoid": tt.nnet.sigmoid,
    "hard_sigmoid": tt.nnet.hard_sigmoid,
    "ultra_fast_sigmoid": tt.nnet.ultra_fast_sigmoid,
    "softplus": tt.nnet.softplus,
    "softsign": tt.nnet.softsign,
    "elu": tt.nnet.elu,
    "selu": tt.nnet.selu,
    "relu": lambda x: tt.nnet.relu(x, 0.1),
    "confusion": lambda x: tt.nnet.binary_crossentropy(tt.nnet.sigmoid(x), tt.nnet.sigmoid(x.T).T),
    "categorical": lambda x: tt.nnet.categorical_crossentropy(tt.nnet.softmax(x), tt.nnet.softmax(-x)),
}


def optimized(inputs, outputs, at_home=()):
    """Return a function whose arrays come from the device and go there, with all of the host's rewrites."""
    moved = {x: HostFromOpenCL()(OpenCLFromHost("dev0")(x)) for x in inputs if x not in at_home}
    outputs = [out.transfer("dev0") for out in theano.clone(outputs, moved)]
    return theano.function(inputs, outputs, mode=theano.Mode("py", "fast_run").including("opencl"))


@pytest.mark.parametrize("name", NETS)
def test_pieces_of_nets_leave_nothing_behind(name, default):
    x = tt.fmatrix()
    y = NETS[name](x)
    outputs = [y] if name == "ultra_fast_sigmoid" else [y, theano.grad(y.sum(), x)]
    value = numbers(4, 3)
    f = optimized([x], outputs)
    for got, want in zip(f(value), host_function([x], outputs)(value), strict=True):
        np.testing.assert_allclose(np.asarray(got), want, rtol=3e-5, atol=1e-7)
    assert not [op for op in ops_of(f) if not op.__name__.startswith("OpenCL") and op is not host.Shape_i]


def test_a_softmax_in_two_levels_leaves_only_indexes_behind(default):
    x, w1, b1, w2, b2, y = tt.fmatrix(), tt.fmatrix(), tt.fvector(), tt.ftensor3(), tt.fmatrix(), tt.lvector()
    out = tt.nnet.h_softmax(x, 4, 6, 2, 3, w1, b1, w2, b2, y)
    values = [numbers(4, 5), numbers(5, 2), numbers(2), numbers(2, 5, 3), numbers(2, 3), np.array([0, 3, 5, 2])]
    f = optimized([x, w1, b1, w2, b2, y], [out], at_home=[y])
    (want,) = host_function([x, w1, b1, w2, b2, y], [out])(*values)
    np.testing.assert_allclose(np.asarray(f(*values)[0]), want, rtol=1e-5)
    floats = [
        node
        for node in f.maker.fgraph.toposort()
        if node.outputs[0].dtype == "float32" and not type(node.op).__name__.startswith("OpenCL")
    ]
    assert {type(node.op).__name__ for node in floats} <= {"HostFromOpenCL"}
