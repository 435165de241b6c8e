"""Groups of device ops are described by lazy tensors, and the scheduler chooses their kernels."""

from __future__ import annotations

import numpy as np
import pytest
import theano
import theano.tensor as tt
from hypothesis import given, settings
from hypothesis import strategies as st
from theano.ifelse import ifelse

from optdb.device.functions.steps import CompiledFusedKernel, CompiledOperation
from optdb.device.schedule.reducing import ScheduledReduction
from optdb.opencl.ops.elemwise import OpenCLElemwise
from optdb.opencl.ops.fused import OpenCLFused
from optdb.opencl.ops.reduce import OpenCLCAReduce
from tests.effort import examples

RNG = np.random.default_rng(7)
HOST = theano.Mode("py", None)
MODE = theano.Mode("py", "fast_run").including("opencl")
WIDE = RNG.uniform(0.5, 2, (32, 40, 32)).astype("float32")
OTHER = RNG.uniform(0.5, 2, (32, 40, 32)).astype("float32")


@pytest.fixture(autouse=True)
def lazy():
    with theano.change_flags(**{"optdb.fuser": "lazy"}):
        yield


def there(*arrays):
    return [theano.shared(np.asarray(a), target="dev0") for a in arrays]


def compiled(outputs, **options):
    return theano.function([], [out.transfer("dev0") for out in outputs], mode=MODE, **options)


def groups(f):
    return [node for node in f.maker.fgraph.toposort() if isinstance(node.op, OpenCLFused)]


def steps_of(node):
    """Return the steps of a group that has run with one combination of layouts."""
    (steps,) = node.op._operation_of(node).scheduled
    return steps


def reductions_of(node):
    steps = [step.node for step in steps_of(node) if isinstance(step, CompiledOperation)]
    return [step for step in steps if isinstance(step, ScheduledReduction)]


def test_a_variance_is_two_reductions_with_epilogues(each_device_kind):
    (x,) = there(WIDE)
    f = compiled([x.var(axis=(0, 2)), tt.sqrt(x.var(axis=(0, 2)) + 1)])
    want = WIDE.var(axis=(0, 2))
    for got, value in zip(f(), (want, np.sqrt(want + 1)), strict=True):
        np.testing.assert_allclose(np.asarray(got), value, rtol=1e-5)
    (node,) = groups(f)
    assert not [n for n in f.maker.fgraph.toposort() if isinstance(n.op, OpenCLElemwise | OpenCLCAReduce)]
    first, second = reductions_of(node)
    assert len(steps_of(node)) == 2 and len(first.also) == 1 and len(second.also) == 2


def test_reductions_of_the_same_array_are_merged_on_gpus(each_device_kind):
    x, y = there(WIDE, OTHER)
    axes = (0, 2)
    f = compiled([x.sum(axis=axes), (x * y).sum(axis=axes), tt.sqr(x - y).mean(axis=axes), y.max(axis=axes)])
    want = [WIDE.sum(axes), (WIDE * OTHER).sum(axes), np.square(WIDE - OTHER).mean(axes), OTHER.max(axes)]
    for got, value in zip(f(), want, strict=True):
        np.testing.assert_allclose(np.asarray(got), value, rtol=1e-5)
    (node,) = groups(f)
    counts = sorted(len(one.results) for one in reductions_of(node))
    assert counts == ([1, 3] if each_device_kind == "gpu" else [1, 1, 1, 1])


def test_reductions_that_need_each_other_stay_apart(each_device_kind):
    (x,) = there(WIDE)
    axes = (0, 2)
    total = x.sum(axis=axes, keepdims=True)
    f = compiled([(x * total).sum(axis=axes), x.sum(axis=axes)])
    whole = WIDE.sum(axes, keepdims=True)
    for got, value in zip(f(), ((WIDE * whole).sum(axes), WIDE.sum(axes)), strict=True):
        np.testing.assert_allclose(np.asarray(got), value, rtol=1e-5)


def test_what_several_kernels_need_is_stored_once(each_device_kind):
    size = (64, 64, 128)
    a, b, c = (RNG.uniform(1, 2, size).astype("float32") for _ in range(3))
    x, y, z = there(a, b, c)
    shifted = (x * y + z) * x
    f = compiled([shifted.sum(axis=0), shifted.max(axis=2), shifted - shifted.sum(axis=(0, 1), keepdims=True)])
    value = (a * b + c) * a
    want = [value.sum(0), value.max(2), value - value.sum((0, 1), keepdims=True)]
    for got, expected in zip(f(), want, strict=True):
        np.testing.assert_allclose(np.asarray(got), expected, rtol=1e-4, atol=0.1)
    (node,) = groups(f)
    assert not any(one.elements.steps for one in reductions_of(node))


def test_constants_are_part_of_the_code_also_through_views(each_device_kind):
    (x,) = there(WIDE)
    f = compiled([(x**2 + 1.5).sum(axis=1), x * np.float32(3) - tt.constant(np.arange(40, dtype="float32"))[:, None]])
    want = [(np.square(WIDE) + 1.5).sum(1), WIDE * 3 - np.arange(40, dtype="float32")[:, None]]
    for got, value in zip(f(), want, strict=True):
        np.testing.assert_allclose(np.asarray(got), value, rtol=1e-5)
    assert all(len(node.inputs) == 1 for node in groups(f))


UPDATES = {
    "elements": lambda w: w * np.float32(0.5) + tt.exp(-w * w),
    "of sums": lambda w: w * np.float32(0.5) + w.mean(axis=0),
    "reversed": lambda w: w * np.float32(0.5) + w[::-1] * np.float32(0.1),
    "normalized": lambda w: (w - w.mean()) / w.std() + w.sum(axis=1, keepdims=True) * np.float32(1e-3),
    "transposed": lambda w: w + w.T[:, : w.shape[1]][: w.shape[0]].sum() + tt.sqr(w),
}


@pytest.mark.parametrize("name", UPDATES)
@pytest.mark.parametrize("shape", [(5, 7), (0, 3), (1, 1), (130, 70)])
def test_next_values_are_computed_in_place(each_device_kind, name, shape):
    value = RNG.normal(size=shape).astype("float32")
    results = []
    for target, mode in (("dev0", MODE), (None, HOST)):
        w = theano.shared(value.copy(), target=target)
        f = theano.function([], updates=[(w, UPDATES[name](w))], mode=mode)
        with np.errstate(all="ignore"):
            for _ in range(4):
                f()
        results.append(np.asarray(w.get_value()))
    np.testing.assert_allclose(*results, rtol=2e-4, atol=1e-5)


def test_the_epilogue_of_a_reduction_overwrites_what_it_updates(each_device_kind):
    x, w, v = there(WIDE, WIDE[0, :, 0], WIDE[1, :, 0])
    step = x.sum(axis=(0, 2)) * np.float32(0.01) + v * np.float32(0.9)
    f = theano.function([], updates=[(w, w - step), (v, step)], mode=MODE)
    wanted, velocity = WIDE[0, :, 0].astype("float64"), WIDE[1, :, 0].astype("float64")
    for _ in range(3):
        f()
        velocity = WIDE.sum((0, 2), dtype="float64") * 0.01 + velocity * 0.9
        wanted = wanted - velocity
    np.testing.assert_allclose(np.asarray(w.get_value()), wanted, rtol=1e-4)
    np.testing.assert_allclose(np.asarray(v.get_value()), velocity, rtol=1e-4)
    (node,) = groups(f)
    assert len(node.op.inplace_pattern) == 2 and len(steps_of(node)) == 1
    assert not any(isinstance(step, CompiledFusedKernel) for step in steps_of(node))


def test_a_branch_that_is_not_taken_computes_nothing():
    (x,) = there(WIDE)
    c = tt.iscalar("c")
    chosen = ifelse(c, tt.exp(x).sum(axis=1) + 1, (x * 2).sum(axis=1))
    f = theano.function([c], chosen.transfer("dev0"), mode=MODE)
    for taken, value in ((1, np.exp(WIDE).sum(1) + 1), (0, (WIDE * 2).sum(1))):
        np.testing.assert_allclose(np.asarray(f(taken)), value, rtol=1e-5)
    assert len(groups(f)) == 2


def test_lengths_are_checked():
    x, y = tt.fmatrix("x"), tt.fmatrix("y")
    f = theano.function([x, y], (tt.exp(x) * y + 1).sum(axis=0), mode="OPENCL")
    for rows in ((3, 4), (3, 1)):
        with pytest.raises(ValueError, match="Dimension mismatch at axis 0"):
            f(*(np.ones((n, 2), "float32") for n in rows))
    with pytest.raises(ValueError, match="no elements to reduce"):
        theano.function([x], tt.exp(x).max(axis=0) * 2, mode="OPENCL")(np.ones((0, 2), "float32"))


@st.composite
def expressions(draw):
    """Draw a function of two matrices and a vector that builds elementwise ops, reductions and transpositions."""
    steps = draw(st.lists(st.tuples(st.integers(0, 6), st.integers(0, 20), st.integers(0, 20)), min_size=2, max_size=9))
    wanted = draw(st.lists(st.integers(0, 20), min_size=1, max_size=3))

    def build(x, y, v):
        known = [x, y, x + v, y * np.float32(0.5)]
        for kind, one, other in steps:
            a, b = known[one % len(known)], known[other % len(known)]
            known.append(
                {
                    0: lambda a=a, b=b: a + b,
                    1: lambda a=a, b=b: tt.tanh(a * b),
                    2: lambda a=a, b=b: a - b.sum(axis=0, keepdims=True),
                    3: lambda a=a, b=b: a / (1 + tt.sqr(b).mean(axis=1, keepdims=True)),
                    4: lambda a=a, b=b: tt.switch(a > b, a, np.float32(0.25) * b),
                    5: lambda a=a, b=b: tt.nnet.sigmoid(a).T.dimshuffle(1, 0) + v,
                    6: lambda a=a, b=b: a * b.sum(),
                }[kind]()
            )
        return [known[number % len(known)] for number in wanted] + [known[-1].sum(axis=0)]

    return build


@settings(max_examples=examples(40), deadline=None)
@given(
    expressions(),
    st.sampled_from([(3, 5), (1, 1), (0, 4), (4, 0), (40, 33), (130, 128)]),
    st.booleans(),
)
def test_random_expressions_have_the_hosts_values(build, shape, swaps):
    x, y, v = tt.fmatrix("x"), tt.fmatrix("y"), tt.fvector("v")
    a, b = (RNG.normal(size=shape).astype("float32") for _ in range(2))
    values = a, b, RNG.normal(size=shape[1]).astype("float32")
    outputs = build(x, y, v)
    want = theano.function([x, y, v], outputs, mode=HOST, on_unused_input="ignore")(*values)
    f = theano.function([x, y, v], outputs, mode="OPENCL", on_unused_input="ignore")
    if swaps:  # inputs that are not contiguous
        values = a[:, ::-1][:, ::-1], np.asfortranarray(b), values[2]
    for _ in range(3):
        for got, value in zip(f(*values), want, strict=True):
            scale = max(1, np.abs(value[np.isfinite(value)]).max(initial=0))
            np.testing.assert_allclose(got, value, rtol=1e-3, atol=1e-4 * scale)


def test_a_fused_op_has_no_gradient():
    (x,) = there(WIDE[0])
    f = compiled([tt.exp(x) * 2 + 1])
    (node,) = groups(f)
    with pytest.raises(theano.gradient.NullTypeGradError, match="the op is the result of fusion"):
        theano.grad(node.outputs[0].transfer("cpu").sum(), node.inputs[0])


def on_a_device(build):
    """Return a function of two matrices and a vector whose ops all run on the device."""
    x, y, v = tt.fmatrix("x"), tt.fmatrix("y"), tt.fvector("v")
    moved = [var.transfer("dev0") for var in (x, y, v)]
    outputs = [out.transfer("cpu") for out in build(*moved)]
    return theano.function([x, y, v], outputs, mode=MODE, on_unused_input="ignore")


def schedules_of(f):
    """Return the number of schedules of each group for varying lengths, and of all its layouts."""
    operations = [node.op._operation_of(node) for node in groups(f)]
    return [(len(one._varying), len({id(known.scheduled) for known in one._known.values()})) for one in operations]


def test_later_lengths_need_no_schedule(each_device_kind):
    f = on_a_device(lambda x, y, v: [tt.tanh(x * y.T + v).sum(axis=0), x - (x * y.T).mean(axis=1, keepdims=True)])
    for rows, columns in ((30, 20), (31, 20), (40, 20), (57, 20), (99, 20), (40, 20)):
        a, b = RNG.normal(size=(2, rows, columns)).astype("float32")
        v = RNG.normal(size=columns).astype("float32")
        total, rest = f(a, np.asfortranarray(b).T, v)
        np.testing.assert_allclose(total, np.tanh(a * b + v).sum(0), rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(rest, a - (a * b).mean(1, keepdims=True), rtol=1e-4, atol=1e-5)
    assert schedules_of(f) and all(counts == (1, 2) for counts in schedules_of(f))


def test_updates_of_varying_lengths_are_in_place(each_device_kind):
    state, other = (theano.shared(WIDE[:20, :, 0], target="dev0") for _ in range(2))
    updates = [(state, other * 2 + state), (other, state - other.sum(axis=1, keepdims=True))]
    f = theano.function([], [], updates=updates, mode=MODE)
    for rows in (20, 21, 25, 30, 25):
        one, two = WIDE[:rows, :, 0], OTHER[:rows, :, 1]
        state.set_value(one)
        other.set_value(two)
        for _ in range(3):
            f()
            one, two = two * 2 + one, one - two.sum(axis=1, keepdims=True)
            np.testing.assert_allclose(np.asarray(state.get_value()), one, rtol=2e-4)
            np.testing.assert_allclose(np.asarray(other.get_value()), two, rtol=2e-4)


LENGTHS = st.sampled_from([0, 1, 2, 3, 7, 16, 17, 33, 64, 130, 257])


@settings(max_examples=examples(30), deadline=None)
@given(expressions(), st.lists(st.tuples(LENGTHS, LENGTHS, st.booleans()), min_size=3, max_size=6))
def test_random_lengths_have_the_hosts_values(build, drawn):
    x, y, v = tt.fmatrix("x"), tt.fmatrix("y"), tt.fvector("v")
    host = theano.function([x, y, v], build(x, y, v), mode=HOST, on_unused_input="ignore")
    f = on_a_device(build)
    for rows, columns, swaps in drawn:
        a, b = RNG.normal(size=(2, rows, columns)).astype("float32")
        values = a, np.asfortranarray(b) if swaps else b, RNG.normal(size=columns).astype("float32")
        for got, value in zip(f(*values), host(*values), strict=True):
            scale = max(1, np.abs(value[np.isfinite(value)]).max(initial=0))
            np.testing.assert_allclose(got, value, rtol=1e-3, atol=1e-4 * scale)
