"""Lifted ops that view, repeat, check or print arrays, or that become several ops, agree with the host."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import theano.tensor as tt
from theano.printing import Print
from theano.tensor.nnet import nnet
from theano.tensor.opt import Assert, MakeVector

from optdb.host.api import ops as host
from optdb.opencl import HostFromOpenCL
from optdb.opencl.ops.views import OpenCLAssert, OpenCLFlatten, OpenCLPrint
from tests.opencl.lifted import both, lifted_function, ops_of

RNG = np.random.default_rng(0)


def numbers(*shape, dtype="float32"):
    return RNG.uniform(-4, 4, shape).astype(dtype)


def compare(inputs, outputs, values, at_home=(), rtol=0.0):
    """Compare with the host; return the classes of the device ops."""
    got, want, ops = both(inputs, outputs, values, at_home)
    for mine, theirs in zip(got, want, strict=True):
        assert mine.dtype == theirs.dtype
        np.testing.assert_allclose(mine, theirs, rtol=rtol)
    return ops


def leftovers(ops):
    """Return the names of host ops, except those that compute sizes and indexes."""
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


@pytest.mark.slow
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


@pytest.mark.slow
def test_vectors_of_numbers_that_are_on_the_device():
    x, s, n = tt.fmatrix(), tt.fscalar(), tt.lscalar()
    outputs = [tt.stack([x.sum(), s, x.max()]) * 2, tt.exp(MakeVector("float32")(x.min()))]
    ops = compare([x, s, n], outputs, [numbers(3, 2), np.float32(2), 3], at_home=[s, n], rtol=1e-6)
    assert MakeVector not in ops
    f = lifted_function([x, n], [tt.zeros(tt.stack([n, x.argmax()])) + x[0, 0]], at_home=[n])
    assert MakeVector in ops_of(f)
    np.testing.assert_array_equal(np.asarray(f(np.eye(2, dtype="float32"), 3)[0]), np.ones((3, 0), "float32"))


@pytest.mark.slow
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


def test_numbers_in_front_of_rows():
    x, v = tt.fmatrix(), tt.fscalar()
    outputs = [nnet.Prepend_scalar_constant_to_each_row(4.0)(x), nnet.Prepend_scalar_to_each_row()(v, x)]
    ops = compare([x, v], outputs, [numbers(3, 2), np.float32(5)])
    assert not leftovers(ops)
