"""On a GPU, reductions of the same arrays are joined; kernels recompute values that would otherwise be stored."""

from __future__ import annotations

import numpy as np
import pytest
import theano
import theano.tensor as tt
from hypothesis import given, settings
from hypothesis import strategies as st
from theano.ifelse import ifelse

import optdb
from optdb.codegen.scalars.program import Number, Scalar, ScalarProgram
from optdb.opencl import get_context
from optdb.opencl.ops.elemwise import OpenCLElemwise
from optdb.opencl.ops.reduce import OpenCLCAReduce
from profiles import models
from tests.effort import examples

pytestmark = pytest.mark.usefixtures("engine_where_quick")

RNG = np.random.default_rng(5)
A = RNG.uniform(0.5, 2, (6, 5, 8)).astype("float32")
B = RNG.uniform(0.5, 2, (6, 5, 8)).astype("float32")
C = RNG.uniform(0.5, 2, (5,)).astype("float32")
MODE = theano.Mode("py", "fast_run").including("opencl")


@pytest.fixture
def gpu(monkeypatch):
    context = get_context("dev0")
    monkeypatch.setattr(context, "profile", context.profile.as_kind("gpu"))


def there(*arrays):
    return [theano.shared(np.asarray(a), target="dev0") for a in arrays]


def computed(outputs, want, reductions, elemwise=0, rtol=2e-6):
    """Check values, and the numbers of reductions and elementwise nodes; return the reductions."""
    f = theano.function([], [out.transfer("dev0") for out in outputs], mode=MODE)
    for got, value in zip(f(), want, strict=True):
        np.testing.assert_allclose(np.asarray(got), value, rtol=rtol)
    nodes = f.maker.fgraph.toposort()
    found = [node for node in nodes if isinstance(node.op, OpenCLCAReduce)]
    assert len(found) == reductions, found
    assert sum(isinstance(node.op, OpenCLElemwise) for node in nodes) == elemwise, nodes
    return found


def test_sums_of_the_same_arrays_are_one(each_device_kind):
    x, y = there(A, B)
    outputs = [x.sum(axis=(0, 2)), (x * y).sum(axis=(0, 2)), tt.sqr(x - y).mean(axis=(0, 2))]
    want = [A.sum((0, 2)), (A * B).sum((0, 2)), np.square(A - B).mean((0, 2))]
    on_gpu = each_device_kind == "gpu"
    found = computed(outputs, want, reductions=1 if on_gpu else 3)
    assert not on_gpu or (found[0].op.results == 3 and len(found[0].outputs) == 3)


def test_other_axes_folds_dtypes_and_arrays_stay_apart(gpu):
    x, y = there(A, B)
    outputs = [x.sum(axis=0), x.sum(axis=(0, 2)), x.max(axis=0), x.sum(axis=0, dtype="float64"), y.sum(axis=0)]
    want = [A.sum(0), A.sum((0, 2)), A.max(0), A.sum(0, dtype="float64"), B.sum(0)]
    computed(outputs, want, reductions=5)


def test_what_depends_on_a_sum_is_no_sibling(gpu):
    (x,) = there(A)
    mean = x.mean(axis=0)
    outputs = [x.sum(axis=0), tt.sqr(x - mean).sum(axis=0)]
    computed(outputs, [A.sum(0), np.square(A - A.mean(0)).sum(0)], reductions=2, rtol=1e-5)


def test_no_family_waits_for_itself(gpu):
    """Each sum could be joined with a sum that depends on the other one; joining both pairs would make a cycle."""
    x, y = there(A, B)
    first, second = x.sum(axis=0), y.sum(axis=0)
    outputs = [first, second, (x * second).sum(axis=0), (y * first).sum(axis=0)]
    want = [A.sum(0), B.sum(0), (A * B.sum(0)).sum(0), (B * A.sum(0)).sum(0)]
    computed(outputs, want, reductions=3, rtol=1e-5)
    outputs = [first, (x * second).sum(axis=0), second, (y * 3).sum(axis=0)]
    want = [A.sum(0), (A * B.sum(0)).sum(0), B.sum(0), 3 * B.sum(0)]
    computed(outputs, want, reductions=2, rtol=1e-5)


def test_a_branch_that_is_not_taken_sums_nothing(gpu):
    x, y = there(A, B)
    condition = tt.lscalar()
    branch = ifelse(condition, (x * y).sum(axis=0), x.sum(axis=0))
    f = theano.function([condition], [branch, (x + y).sum(axis=0)], mode=MODE)
    assert sum(isinstance(node.op, OpenCLCAReduce) for node in f.maker.fgraph.toposort()) == 3
    np.testing.assert_allclose(np.asarray(f(1)[0]), (A * B).sum(0), rtol=1e-6)
    np.testing.assert_allclose(np.asarray(f(0)[0]), A.sum(0), rtol=1e-6)


def test_a_kernel_takes_no_more_elements_than_registers_hold(gpu):
    (x,) = there(A)
    outputs = [tt.sqr(x + i).sum(axis=0) for i in range(8)]
    computed(outputs, [np.square(A + i).sum(0) for i in range(8)], reductions=2)


@pytest.mark.parametrize("shape", [(0, 4), (4, 0), (1, 1), (1, 7)])
def test_siblings_of_nothing(gpu, shape):
    value = np.ones(shape, "float32")
    (x,) = there(value)
    outputs = [x.sum(axis=0), tt.sqr(x + 1).sum(axis=0), (x.sum(axis=0) + 1) * 2]
    want = [value.sum(0), 4 * value.sum(0), (value.sum(0) + 1) * 2]
    f = theano.function([], [out.transfer("dev0") for out in outputs], mode=MODE)
    for got, one in zip(f(), want, strict=True):
        np.testing.assert_allclose(np.asarray(got), one, rtol=1e-6)


def test_the_gradient_of_a_batch_normalization_stores_no_array_but_its_result(gpu):
    """The gradient's sums and last kernel only read the input and the result's gradient; they recompute the rest."""
    x, t, scale = there(A, B, C)
    wide = scale.dimshuffle("x", 0, "x")
    mean, variance = x.mean(axis=(0, 2), keepdims=True), x.var(axis=(0, 2), keepdims=True)
    y = tt.nnet.relu((x - mean) / tt.sqrt(variance + 1e-4) * wide - 0.1)
    gradients = theano.grad((y * t).sum(), [x, scale])
    plain = theano.function([], gradients, mode=theano.Mode("py", "fast_compile"))()
    f = theano.function([], [out.transfer("dev0") for out in gradients], mode=MODE)
    for got, want in zip(f(), plain, strict=True):
        np.testing.assert_allclose(np.asarray(got), want, rtol=2e-3, atol=2e-5)
    whole = [
        out
        for node in f.maker.fgraph.toposort()
        if isinstance(node.op, OpenCLElemwise)
        for out in node.outputs
        if out.type.broadcastable == (False,) * 3
    ]
    assert len(whole) == 1


def test_what_others_need_is_stored_once(gpu):
    x, y = there(A, B)
    z = x * y + 1
    f = theano.function([], [z.transfer("dev0"), z.sum(axis=0), tt.sqr(z).sum(axis=0), (z * x).sum(axis=0)], mode=MODE)
    z = A * B + 1
    for got, want in zip(f(), [z, z.sum(0), np.square(z).sum(0), (z * A).sum(0)], strict=True):
        np.testing.assert_allclose(np.asarray(got), want, rtol=1e-6)
    elementwise = [node for node in f.maker.fgraph.toposort() if isinstance(node.op, OpenCLElemwise)]
    assert [len(node.outputs) for node in elementwise] == [1]


def test_what_is_dear_is_computed_once(gpu):
    x, y = there(A, B)
    z = tt.tanh(x) * y
    outputs = [(z / z.sum(axis=0)).transfer("dev0")]
    want = np.tanh(A) * B
    computed(outputs, [want / want.sum(0)], reductions=1, elemwise=2)


def test_a_program_without_what_is_unused():
    one = Number.of(1, "float32")
    steps = [(Scalar("Mul", "float32"), (0, 1)), (Scalar("Add", "float32"), (2, one)), (Scalar("Sqr", "float32"), (4,))]
    program = ScalarProgram(("float32",) * 3, tuple(steps), (5, 4, 2))
    pruned, kept = program.pruned()
    assert kept == (2,)
    assert pruned == ScalarProgram(("float32",), ((steps[1][0], (0, one)), (steps[2][0], (1,))), (2, 1, 0))


UNARY = [tt.sqr, lambda x: x * np.float32(1.5), lambda x: -x, abs, lambda x: tt.switch(x > 0, x, np.float32(0.1) * x)]
BINARY = [lambda x, y: x + y, lambda x, y: x - y, lambda x, y: x * y, tt.maximum]
FOLDS = [lambda x: x.sum(axis=0), lambda x: x.mean(axis=(0, 2)).dimshuffle(0, "x"), lambda x: x.max(axis=0)]


@st.composite
def graphs(draw):
    """Draw a graph; return its variables: a few arrays, their sums, and expressions of arrays and sums."""
    made = there(A, B)
    pick = st.sampled_from
    for _ in range(draw(st.integers(4, 16))):
        one, other = (made[draw(st.integers(0, len(made) - 1))] for _ in range(2))
        kind = draw(st.integers(0, 4))
        if kind == 0:
            made.append(draw(pick(UNARY))(one))
        elif kind == 1:
            made.append(draw(pick(BINARY))(one, other) * np.float32(0.5))
        else:
            folded = draw(pick(FOLDS))(one)
            made.append(draw(pick(BINARY))(other, folded * np.float32(0.1)))
    sums = [draw(pick(FOLDS))(made[draw(st.integers(0, len(made) - 1))]) for _ in range(draw(st.integers(1, 4)))]
    return [made[-1], *sums]


@pytest.mark.slow
@given(graphs())
@settings(max_examples=examples(60, share=10), deadline=None)
def test_values_of_random_graphs(outputs):
    context = get_context("dev0")
    plain = theano.function([], outputs, mode=theano.Mode("py", "fast_compile"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(context, "profile", context.profile.as_kind("gpu"))
        f = theano.function([], [out.transfer("dev0") for out in outputs], mode=MODE)
        got = list(map(np.asarray, f()))
    for one, want in zip(got, plain(), strict=True):
        np.testing.assert_allclose(one, want, rtol=2e-4, atol=2e-4 * np.abs(want).max())


@pytest.mark.thorough_cases("convnet-sizes1")
@pytest.mark.thorough_cases("cifar_resnet-sizes0")
@pytest.mark.slow
@pytest.mark.parametrize("name, sizes", [("cifar_resnet", {"n": 1, "width": 4}), ("convnet", {})])
def test_models_train_alike_on_both_kinds_of_device(name, sizes, monkeypatch):
    context, results = get_context("dev0"), []
    for kind in ("cpu", "gpu"):
        monkeypatch.setattr(context, "profile", context.profile.as_kind(kind))
        model = models.build(name, **{**sizes, **({"rate": 1e-3} if "n" in sizes else {})})
        f = theano.function(model.inputs, model.outputs, updates=model.updates, mode=optdb.mode(MODE))
        losses = [np.asarray(f(*model.data)[0]) for _ in range(3)]
        results.append([*losses, *(np.asarray(w.get_value()) for w in model.updates)])
    for got, want in zip(*results, strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-3, atol=1e-4 * max(np.abs(want).max(), 1e-3))
