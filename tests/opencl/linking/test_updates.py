"""Repeated commands overwrite the current values of shared arrays with the next values."""

from __future__ import annotations

import time

import numpy as np
import pytest
import theano
import theano.tensor as tt
from hypothesis import given
from hypothesis import strategies as st

import optdb  # noqa: F401  comes before theano
from optdb.device.plans import updates
from optdb.device.plans.updates import find_commit
from optdb.opencl import get_context
from optdb.opencl.aliasing import overwriting
from optdb.opencl.ops.contiguous import OpenCLContiguous
from tests.opencl.simulator.made import simulated

pytestmark = [pytest.mark.optimized, pytest.mark.usefixtures("default")]

MODE = theano.compile.get_default_mode().including("opencl")


@pytest.fixture
def commits(monkeypatch):
    """Return a list to which each call of `commit` adds a number."""
    seen, commit = [], updates.commit
    monkeypatch.setattr(updates, "commit", lambda linked: (seen.append(1), commit(linked)))
    return seen


def shared(*values):
    return theano.shared(np.array(values, "float32"), target="dev0")


def test_arrays_that_take_each_others_place(commits):
    a, b = shared(1, 2, 3), shared(10, 20, 30)
    f = theano.function([], [], updates=[(a, b + 1), (b, a * 2)], mode=MODE)
    host_a, host_b = a.get_value(), b.get_value()
    for _ in range(7):
        f()
        host_a, host_b = host_b + 1, host_a * 2
        np.testing.assert_array_equal(a.get_value(), host_a)
        np.testing.assert_array_equal(b.get_value(), host_b)
    assert len(commits) <= 2


def wait_until(is_reached):
    until = time.monotonic() + 60
    while not is_reached():
        assert time.monotonic() < until
        time.sleep(0.01)


@pytest.mark.parametrize("wish", ["auto", "always", "never"])
def test_the_copies_of_many_next_values_are_one_launch(wish, monkeypatch):
    monkeypatch.setattr(theano.config.optdb, "merge_launches", wish)
    context = get_context("dev0")
    if not (context.profile.quirks.keeps_addresses and context.profile.quirks.copy_s):
        pytest.skip("copies are not gathered here")
    states = [shared(number, number + 1, 3) for number in range(9)]
    turned = np.roll(np.eye(3, dtype="float32"), 1, axis=0)
    # Each next value depends on the current value, so it cannot be computed in the current value's memory.
    following = [tt.dot(turned, state) for state in states]
    f = theano.function([], [], updates=list(zip(states, following)), mode=MODE)
    hosts = [state.get_value() for state in states]
    for call in range(8):
        f()
        if call == 4 and wish == "auto":
            merging = f.fn._current_entry().plan.commit._merging
            assert not merging.expect(1000) and merging.expect(10000)
        if call == 5 and wish == "auto":
            wait_until(merging._pause.is_ready)
        hosts = [turned.dot(host) for host in hosts]
        for state, host in zip(states, hosts, strict=True):
            np.testing.assert_array_equal(state.get_value(), host)
    kinds = [type(command).__name__ for command in f.fn._current_entry().plan.commit._commands]
    assert kinds == (["EnqueueCopy"] * 9 if wish == "never" else ["EnqueueKernel"])


def test_plain_exchanges_and_results_of_what_moves():
    a, b, c = shared(1, 2), shared(3, 4), shared(5, 6)
    f = theano.function([], [a + b, b], updates=[(a, b), (b, c), (c, a)], mode=MODE)
    hosts, kept = [x.get_value() for x in (a, b, c)], []
    for _ in range(7):
        kept.append((f(), (hosts[0] + hosts[1], hosts[1])))
        hosts = [hosts[1], hosts[2], hosts[0]]
        for x, value in zip((a, b, c), hosts):
            np.testing.assert_array_equal(x.get_value(), value)
    for results, expected in kept:
        np.testing.assert_array_equal([np.asarray(result) for result in results], expected)


def test_a_next_value_that_is_a_result_is_the_callers():
    a = shared(1, 2)
    following = a * 2
    f = theano.function([], following, updates=[(a, following)], mode=MODE)
    kept = [f() for _ in range(6)]
    for power, result in enumerate(kept, 1):
        np.testing.assert_array_equal(np.asarray(result), np.array([1, 2]) * 2**power)


def test_values_that_are_set_between():
    a, b, x = shared(1, 2), shared(3, 4), tt.fvector()
    f = theano.function([x], [], updates=[(a, b + x.sum()), (b, a * 2)], mode=MODE)
    host_a, host_b = a.get_value(), b.get_value()
    for call in range(14):
        if call % 5 == 4:
            host_a = np.array([call, -call], "float32")
            a.set_value(host_a)
        value = np.ones(call // 3 % 2 + 1, "float32")  # arguments of two shapes, for each of which there is a plan
        f(value)
        host_a, host_b = host_b + value.sum(), host_a * 2
        np.testing.assert_array_equal(a.get_value(), host_a)
        np.testing.assert_array_equal(b.get_value(), host_b)


def test_empty_arrays_and_numbers_of_the_host():
    a, n = shared(), theano.shared(np.int64(3))
    f = theano.function([], n * 2, updates=[(a, a + 1), (n, n + 1)], mode=MODE)
    assert [int(f()) for _ in range(5)] == [6, 8, 10, 12, 14]
    assert a.get_value().shape == (0,)


def test_arrays_that_change_their_length():
    a = shared(1.0)
    f = theano.function([], a.sum(), updates=[(a, tt.concatenate([a, a[-1:] * 2]))], mode=MODE)
    sums = [float(f()) for _ in range(6)]
    assert sums == [2.0**n - 1 for n in range(1, 7)]


# In the tests below, a value is a pair: its buffer, and its content.


def buffer_of(value):
    return value[0]


def is_in_place(present, following):
    return present[0] == following[0]


def test_swapped_values_are_copied_before():
    a, b = ("a", 1), ("b", 2)
    commit = find_commit([("x", a, b), ("y", b, a)], [("x'", b), ("y'", a)], buffer_of, is_in_place)
    assert commit.written == ["x", "y"]
    assert commit.aliased == ["x'", "y'"]


def test_a_result_that_is_the_present_value_is_copied_only_if_that_is_overwritten():
    a = ("a", 1)
    values = [("result", a), ("other", ("c", 3)), ("nowhere", (None, 0))]
    assert find_commit([("x", a, ("b", 2))], values, buffer_of, is_in_place).aliased == ["result"]
    assert find_commit([("x", a, a)], values, buffer_of, is_in_place).aliased == []


@given(st.data())
def test_nothing_is_lost(data):
    """Results and next values are the same as if all next values were computed in new memory and written at once."""
    names = "abcdef"
    memory = {name: number for number, name in enumerate(names)}
    arrays = data.draw(st.lists(st.sampled_from(names), unique=True, max_size=4))
    updates = [(name, (name,), (data.draw(st.sampled_from(names)),)) for name in arrays]
    results = [(("result", i), (data.draw(st.sampled_from(names)),)) for i in range(3)]
    following = [(("next", key), value) for key, _, value in updates]
    expected = {key: memory[buffer_of(value)] for key, value in (*results, *following)}

    commit = find_commit(updates, [*results, *following], buffer_of, is_in_place)
    values = dict([*results, *following])
    copies = {}
    for key in commit.aliased:
        copies[key] = memory[buffer_of(values[key])]
    for key in commit.written:
        source = ("next", key)
        memory[key] = copies[source] if source in copies else memory[buffer_of(values[source])]
    found = {key: copies[key] if key in copies else memory[buffer_of(value)] for key, value in values.items()}
    for key, _ in results:
        assert found[key] == expected[key]
    for name in arrays:
        assert memory[name] == expected["next", name]


def test_what_is_overwritten_too_early_leaves_other_state_alone():
    """The next weights are computed in place, but not the next average, because a host number depends on it."""
    rng = np.random.RandomState(5)
    x = tt.fmatrix("x")
    w = theano.shared(rng.uniform(-1, 1, (4, 4)).astype("float32"), "w")
    average = theano.shared(np.zeros(4, "float32"), "average")
    following = average * np.float32(0.9) + x.mean(axis=0) * np.float32(0.1)
    cost = tt.sqr((x - following).dot(w)).sum()
    updates = [(average, following), (w, w - np.float32(0.01) * tt.grad(cost, w))]
    f, sim = simulated([x], [cost, x[tt.cast(cost, "int64") % 3].sum()], updates=updates)
    for _ in range(5):
        value = rng.uniform(-1, 1, (3, 4)).astype("float32")
        np.testing.assert_allclose(sim(value), f(value), rtol=1e-4)
        for var in (w, average):
            np.testing.assert_allclose(sim.get(var), var.get_value(), rtol=1e-4, atol=1e-6)
    assert overwritten_by_ndim(sim) == {1: False, 2: True}


def test_next_values_of_flipped_gradients_are_written_over_the_present_ones():
    """A filter's gradient is a view with negative strides; the next value is neither this view nor a copy of it."""
    rng = np.random.RandomState(6)
    x = tt.ftensor4("x")
    filters, speeds = rng.uniform(-1, 1, (3, 2, 3, 3)).astype("float32"), np.zeros((3, 2, 3, 3), "float32")
    w, speed = theano.shared(filters, "w"), theano.shared(speeds, "speed")
    faster = speed * np.float32(0.9) - np.float32(1e-3) * tt.grad(tt.sqr(tt.nnet.conv2d(x, w)).sum(), w)
    _, sim = simulated([x], w.sum(), updates=[(speed, faster), (w, w + faster)])
    for _ in range(4):
        value = rng.uniform(-1, 1, (2, 2, 6, 6)).astype("float32")
        windows = np.lib.stride_tricks.sliding_window_view(value, (3, 3), (2, 3))
        result = np.einsum("bcijuv,ocuv->boij", windows, filters[:, :, ::-1, ::-1])
        speeds = speeds * 0.9 - 1e-3 * np.einsum("bcijuv,boij->ocuv", windows, 2 * result)[:, :, ::-1, ::-1]
        np.testing.assert_allclose(sim(value), filters.sum(), rtol=1e-3)
        filters = filters + speeds
        np.testing.assert_allclose(sim.get(w), filters, rtol=1e-3, atol=1e-5)
        np.testing.assert_allclose(sim.get(speed), speeds, rtol=1e-3, atol=1e-5)
    assert not any(isinstance(node.op, OpenCLContiguous) for node in sim._executable.graph.fgraph.apply_nodes)
    assert overwritten_by_ndim(sim) == {4: True}


def overwritten_by_ndim(sim):
    """Map the ranks of a simulator's two shared variables to whether nodes of the graph overwrite them."""
    fgraph = sim._executable.graph.fgraph
    found: dict[int, set[bool]] = {}
    for var in fgraph.inputs[-2:]:
        found.setdefault(var.type.ndim, set()).add(bool(overwriting(fgraph.toposort(), [var])))
    return {ndim: all(answers) for ndim, answers in found.items()}
