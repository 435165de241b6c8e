"""Views whose offset differs in each call are copied to a fixed address, if all calls can then use one plan."""

from __future__ import annotations

import numpy as np
import pytest
import theano
import theano.tensor as tt
from hypothesis import given
from hypothesis import strategies as st

from optdb.device.plans import recording
from tests.effort import examples
from tests.opencl.simulator.made import simulated

pytestmark = pytest.mark.usefixtures("engine_where_quick")

ROWS, WIDTH, BATCH = 22, 4, 5
DATA = np.random.RandomState(3).rand(ROWS, WIDTH).astype("float32")
#: The last batch is shorter.
INDEXES = [0, 1, 0, 2, 3, 3, 4, 0, 4, 1]


def trained_on_a_data_set():
    """Return a function that trains on the batch of a data set with a given index, its simulator, and the weights."""
    index = tt.lscalar("index")
    data = theano.shared(DATA, "data")
    w = theano.shared(np.eye(WIDTH, dtype="float32"), "w")
    x = data[index * BATCH : (index + 1) * BATCH]
    cost = ((tt.tanh(x.dot(w)) - x) ** 2).sum()
    f, sim = simulated([index], cost, updates=[(w, w - np.float32(0.1) * tt.grad(cost, w))])
    return f, sim, w


def assert_same(got, expected):
    for result, wanted in zip(np.atleast_1d(got), np.atleast_1d(expected), strict=True):
        np.testing.assert_allclose(result, wanted, rtol=1e-4, atol=1e-6)


def computed(sim, *args):
    """Return the ops whose nodes a call computes in Python."""
    linked = sim._executable.run.linked
    run, ran = type(linked).run, []

    def noted(self, number):
        ran.append(str(self.nodes[number].origin.op))
        return run(self, number)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(linked), "run", noted)
        sim(*args)
    return {name.split("{")[0] for name in ran if name.startswith("OpenCL")}


@pytest.mark.parametrize("how", ["calls", "run_async", "call_n_times"])
def test_batches_of_a_data_set(how):
    f, sim, w = trained_on_a_data_set()
    for index in INDEXES * 2:
        for _ in range(3 if how == "call_n_times" else 1):
            expected = f(index)
        if how == "calls":
            got = sim(index)
        else:
            got = sim.run_async(index).wait() if how == "run_async" else sim.call_n_times(3, index)
        assert_same(got, expected)
        assert_same(sim.get(w), w.get_value())


def test_the_view_alone_computes():
    _, sim, _ = trained_on_a_data_set()
    for index in (0, 0, 1, 2, 0):
        sim(index)
    assert computed(sim, 3) == {"OpenCLSubtensor"}


def test_a_large_view_is_not_copied(monkeypatch):
    monkeypatch.setattr(recording, "MAX_SHARED_VIEW_BYTES", 8)
    monkeypatch.setattr(recording, "MAX_VIEW_BYTES", 8)
    f, sim, _ = trained_on_a_data_set()
    for index in INDEXES:
        assert_same(sim(index), f(index))
    assert len(computed(sim, 2)) > 1


def test_a_view_that_a_node_overwrites():
    index, by = tt.lscalar("index"), tt.fscalar("by")
    data = theano.shared(DATA.copy(), "data")
    part = data[index : index + 2]
    following = tt.inc_subtensor(part, by)
    f, sim = simulated([index, by], [part.sum(), following[index] * 2], updates=[(data, following)])
    for index in INDEXES:
        assert_same(np.hstack(sim(index, 2)), np.hstack(f(index, 2)))
        assert_same(sim.get(data), data.get_value())


def test_a_view_that_the_caller_gets():
    x, index = tt.fmatrix("x"), tt.lscalar("index")
    part = x[index : index + 3]
    f, sim = simulated([x, index], [part, part.T.dot(part)])
    kept = []
    for number, index in enumerate(INDEXES):
        kept.append((sim(DATA + number, index), f(DATA + number, index)))
    for got, expected in kept:
        for result, wanted in zip(got, expected, strict=True):
            assert_same(result, wanted)


@pytest.mark.parametrize("view", [lambda x, i: x[::-1][i], lambda x, i: x[i : i + 6 : 2], lambda x, i: x[:, i % WIDTH]])
def test_views_of_any_strides(view):
    x, index = tt.fmatrix("x"), tt.lscalar("index")
    part = view(x, index)
    f, sim = simulated([x, index], (tt.tanh(part) * part).sum())
    for number, index in enumerate(INDEXES):
        assert_same(sim(DATA + number, index), f(DATA + number, index))


@given(st.lists(st.tuples(st.integers(0, ROWS - 3), st.integers(0, 4)), min_size=3, max_size=examples(12)))
def test_a_buffer_that_is_written_while_parts_are_read(turns):
    index, other, x = tt.lscalar("index"), tt.lscalar("other"), tt.fvector("x")
    data = theano.shared(DATA.copy(), "data")
    cost = (data[index : index + 3] ** 2).sum() + tt.tanh(data[other]).sum()
    following = tt.set_subtensor(data[other], x)
    f, sim = simulated([index, other, x], cost, updates=[(data, following)])
    for number, (at, place) in enumerate(turns):
        assert_same(sim(at, place, DATA[number % ROWS]), f(at, place, DATA[number % ROWS]))
        assert_same(sim.get(data), data.get_value())


def test_a_reshape_is_no_moving_view():
    """A reshaped array is not copied: its lengths depend on a changing host value, but its address does not."""
    rows, w = tt.lscalar("rows"), theano.shared(DATA, "data")
    shaped = tt.exp(w).reshape((rows, -1))
    f, sim = simulated([rows], [(shaped[:, ::2] * 2).sum(), tt.dot(shaped, shaped.T).sum()])
    copied = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(recording, "copy_array", lambda array: copied.append(array) or array)
        for count in (ROWS, ROWS, 2, ROWS, 11, 11):
            assert_same(np.hstack(sim(count)), np.hstack(f(count)))
    assert not copied
