"""A check of a simulator reports only the step whose result differs from the host's."""

from __future__ import annotations

import copy
from pathlib import Path

import numpy as np
import pytest
import theano
import theano.tensor as tt
from hypothesis import given
from hypothesis import strategies as st
from theano.compile.ops import as_op
from theano.ifelse import ifelse
from theano.sandbox.rng_mrg import MRG_RandomStreams

import optdb
from optdb.codegen.gemm import operations
from optdb.opencl.ops.elemwise import OpenCLElemwise
from optdb.opencl.ops.reduce import OpenCLCAReduce
from optdb.opencl.ops.softmax import OpenCLCrossentropySoftmaxArgmax1HotWithBias
from optdb.opencl.simulator.diagnostics.checking import StepsDiffer, compare
from profiles import models

pytestmark = pytest.mark.usefixtures("engine_where_quick")


def simulated(inputs, outputs, **kwargs):
    """Return a simulator of a function that the host computes in Python."""
    f = theano.function(inputs, outputs, mode=theano.Mode(linker="py", optimizer="fast_run"), **kwargs)
    return optdb.SimulatorOCL(f, device="dev0")


def other_code(monkeypatch, op, right, wrong):
    """Replace the text `right` by `wrong` in the kernels of an op."""
    kernels_of = op.gpu_kernels

    def gpu_kernels(self, node, name):
        kernels = [copy.copy(kernel) for kernel in kernels_of(self, node, name)]
        for kernel in kernels:
            kernel.code = kernel.code.replace(right, wrong)
        return kernels

    monkeypatch.setattr(op, "gpu_kernels", gpu_kernels)


@pytest.fixture
def step():
    """Return the training step of a small net, and its arguments."""
    rng = np.random.RandomState(0)
    x, y = tt.fmatrix("x"), tt.ivector("y")
    w = theano.shared(rng.randn(20, 12).astype("float32"), name="w")
    v = theano.shared(rng.randn(12, 5).astype("float32"), name="v")
    p = tt.nnet.softmax(tt.exp(-abs(x.dot(w))).dot(v))
    loss = tt.nnet.categorical_crossentropy(p, y).mean()
    updates = [(one, one - np.float32(0.1) * tt.grad(loss, one)) for one in (w, v)]
    data = (rng.randn(8, 20).astype("float32"), rng.randint(0, 5, 8).astype("int32"))
    return (lambda: simulated([x, y], [loss, p.max(axis=0)], updates=updates)), data


@pytest.mark.slow
def test_nothing_differs_where_nothing_is_wrong(step):
    make, data = step
    report = make().check(*data)
    assert report.ok and report.first is None and report.differing == []
    assert len(report.steps) >= 8 and report.not_compared == []
    report.raise_if_different()


def test_a_check_changes_nothing(step):
    make, data = step
    sim, twin = make(), make()
    for _ in range(3):
        before = sim.get("w")
        report = sim.check(*data)
        np.testing.assert_array_equal(sim.get("w"), before)
        outputs = twin(*data)
        np.testing.assert_allclose(report.outputs[0], outputs[0], rtol=1e-5)
        np.testing.assert_array_equal(sim(*data)[0], outputs[0])


def line_of(text):
    """Return the number of the line in this file that contains a text."""
    lines = Path(__file__).read_text().splitlines()
    return next(number for number, line in enumerate(lines, 1) if text in line)


@pytest.mark.slow_cases("OpenCLElemwise-exp(-exp2(-p = tt.nnet.softmax", "OpenCLCAReduce-) >= (-) <= (-p.max(axis=0)")
@pytest.mark.parametrize(
    "op, right, wrong, line",
    [
        (OpenCLElemwise, "exp(", "exp2(", "p = tt.nnet.softmax"),
        (OpenCLCrossentropySoftmaxArgmax1HotWithBias, "exp(", "exp2(", "p = tt.nnet.softmax"),
        (OpenCLCAReduce, ") >= (", ") <= (", "p.max(axis=0)"),
    ],
)
def test_a_wrong_kernel_is_named(step, monkeypatch, op, right, wrong, line):
    make, data = step
    other_code(monkeypatch, op, right, wrong)
    report = make().check(*data)
    assert not report.ok
    assert {type_of(found) for found in report.differing} <= {op.__name__}, str(report)
    assert f"{line_of(line)}:" in report.first.line
    found = report.first.difference
    np.testing.assert_array_equal(found.device[found.index], found.on_device)
    np.testing.assert_array_equal(found.host[found.index], found.on_host)
    assert np.abs(found.device - found.host).max() == abs(found.on_device - found.on_host)
    assert report.first.op in str(report) and "test_check.py" in report.first.trace


def type_of(found):
    return found.op.split("{")[0]


def test_only_the_wrong_product_of_several_is_named(step, monkeypatch):
    make, data = step
    right = operations.matmul

    def wrong(kernels, context, a, b, z, alpha=1.0, *rest, **options):
        right(kernels, context, a, b, z, alpha * (1.001 if b.shape == (12, 5) else 1), *rest, **options)

    monkeypatch.setattr(operations, "matmul", wrong)
    report = make().check(*data)
    assert len(report.differing) == 1
    assert {value.shape for _, value in report.first.inputs} >= {(8, 12), (12, 5)}
    with pytest.raises(StepsDiffer, match="device compared with host") as raised:
        make().check(*data, raise_on_difference=True)
    assert raised.value.report.first.op == report.first.op


def test_a_whole_number_that_is_off_by_one_differs(monkeypatch):
    other_code(monkeypatch, OpenCLElemwise, "7", "8")
    x = tt.lvector("x")
    report = simulated([x], tt.cast(x * 7, "float64") + 0.5).check(np.arange(5))
    assert report.differing


@pytest.mark.slow
def test_steps_of_all_kinds_are_like_the_hosts():
    x, n = tt.fmatrix("x"), tt.iscalar("n")
    w = theano.shared(np.eye(3, dtype="float32") / 2, name="w")

    @as_op(itypes=[tt.fmatrix], otypes=[tt.fmatrix])
    def upside_down(a):
        return a[::-1].copy()

    states, _ = theano.scan(lambda row, state: tt.tanh(row + state.dot(w)), [x], [tt.zeros(3, "float32")])
    outputs = [
        *(states[-1].sum(), tt.grad(states[-1].sum(), w), upside_down(x * w) + 1, x[:n], x.sort(axis=0)),
        *(x.argmax(axis=1), x > 0, tt.nnet.relu(x.dot(w)), x.T.dot(x), MRG_RandomStreams(3).normal((4, 3))),
    ]
    sim = simulated([x, n], outputs, updates=[(w, w * 2)])
    data = np.random.RandomState(0).randn(3, 3).astype("float32")
    for _ in range(2):
        report = sim.check(data, 2)
        assert report.ok, str(report)
        assert report.places["host"] and len(report.steps) > 10
        np.testing.assert_allclose(report.outputs[2], sim(data, 2)[2], rtol=1e-6)


def test_only_the_branch_that_is_taken_is_computed():
    x = tt.fmatrix("x")
    w = theano.shared(np.ones((3, 3), "float32"))
    sim = simulated([x], ifelse(x.sum() > 0, x.dot(w), x - w))
    for sign in (1, -1):
        report = sim.check(sign * np.ones((3, 3), "float32"))
        assert report.ok
        assert [why for _, why in report.not_compared] == ["it was not needed by this call"]


@pytest.mark.slow
def test_inputs_with_updates_and_added_methods():
    x, total = tt.dscalar("x"), tt.dvector("total")
    w = theano.shared(np.ones(3), name="w")
    f = theano.function([x, theano.In(total, value=np.zeros(2), update=total + x)], total.sum() * w.sum())
    sim = optdb.SimulatorOCL(f, device="dev0")
    sim.add_method("twice", theano.function([x], w * x * 2, updates=[(w, w + x)]))
    for value in (1.0, 2.0, 3.0):
        assert sim.check(value).ok
        assert sim.twice.check(x=value).ok
        np.testing.assert_allclose(sim(value), f(value))
    np.testing.assert_array_equal(sim.get(w), np.ones(3))


def test_wrong_arguments_are_those_of_a_call(step):
    make, _ = step
    sim = make()
    with pytest.raises(TypeError, match="Missing required input"):
        sim.check()


@pytest.mark.slow
def test_what_cancels_out_may_be_anything_small():
    # The exact sum is 0, so the computed sum is a rounding error, like the gradient of a bias before a normalization.
    x = tt.fmatrix("x")
    data = np.random.RandomState(0).randn(300, 40).astype("float32")
    report = simulated([x], ((x - x.mean(axis=0)) * 1000).sum(axis=0)).check(data)
    assert report.ok, str(report)


@given(
    dtype=st.sampled_from(["float16", "float32", "float64", "complex64", "int8", "uint64", "bool"]),
    size=st.integers(0, 5),
    data=st.data(),
)
def test_values_are_alike_if_and_only_if_they_are_near(dtype, size, data):
    rng = np.random.RandomState(data.draw(st.integers(0, 99)))
    value = (rng.rand(size, 2) * 100).astype(dtype)
    assert compare(value, value.copy(), np.array_equal) is None
    if not size:
        return
    index = (data.draw(st.integers(0, size - 1)), data.draw(st.integers(0, 1)))
    other = value.copy()
    other[index] = not other[index] if dtype == "bool" else other[index] + other.dtype.type(5)
    found = compare(other, value, np.array_equal)
    assert found.index == index and (found.count, found.size) == (1, value.size)


@pytest.mark.parametrize("odd", [np.nan, np.inf, -np.inf])
def test_what_is_not_finite_has_to_stand_in_the_same_places(odd):
    value = np.array([1.0, odd, 3.0])
    assert compare(value, value.copy(), np.array_equal) is None
    found = compare(np.array([1.0, 2.0, 3.0]), value, np.array_equal)
    assert found.index == (1,) and found.count == 1
    assert compare(value, -value, np.array_equal).count >= 2


def test_shapes_and_dtypes_are_compared():
    assert "shapes" in compare(np.zeros(3), np.zeros((3, 1)), np.array_equal).what
    assert "dtypes" in compare(np.zeros(3), np.zeros(3, "float32"), np.array_equal).what
    assert compare([1], [2], lambda a, b: a == b).what == "the values differ"
    assert compare([1], [1], lambda a, b: a == b) is None


@pytest.mark.thorough_cases("gp")
@pytest.mark.slow
@pytest.mark.parametrize("name", ["mlp", "gp"])
def test_models_are_like_the_hosts(name):
    model = models.build(name)
    sim = simulated(model.inputs, model.outputs, updates=model.updates)
    report = sim.check(*model.data)
    assert report.ok, str(report)
    assert {why for _, why in report.not_compared} <= {"its content is undefined"}
    assert len(report.steps) > report.places["device"] / 2
