"""Next values of shared arrays are written over the present ones, by commands that are repeated."""

from __future__ import annotations

import numpy as np
import pytest
import theano
import theano.tensor as tt
from hypothesis import given
from hypothesis import strategies as st

import optdb  # noqa: F401  comes before theano
from optdb.opencl import get_context
from optdb.opencl.planning import updates
from optdb.opencl.planning.updates import find_commit

pytestmark = [pytest.mark.optimized, pytest.mark.usefixtures("default")]

MODE = theano.compile.get_default_mode().including("opencl")


@pytest.fixture
def commits(monkeypatch):
    """Gather a number for each call of `commit` itself."""
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


@pytest.mark.parametrize("wish", ["auto", "always", "never"])
def test_the_copies_of_many_next_values_are_one_launch(wish, monkeypatch):
    monkeypatch.setattr(theano.config.optdb, "merge_launches", wish)
    context = get_context("dev0")
    if not (context.profile.quirks.keeps_addresses and context.profile.quirks.copy_s):
        pytest.skip("copies are not gathered here")
    states = [shared(number, number + 1, 3) for number in range(9)]
    turned = np.roll(np.eye(3, dtype="float32"), 1, axis=0)
    following = [tt.dot(turned, states[number - 1]) for number in range(9)]
    f = theano.function([], [], updates=list(zip(states, following)), mode=MODE)
    hosts = [state.get_value() for state in states]
    for call in range(8):
        f()
        if call == 4 and wish == "auto":
            commit = f.fn._current_entry().commit
            assert 1000 < commit._calls_left < 10000
            commit._calls_left = 1
        hosts = [turned.dot(hosts[number - 1]) for number in range(9)]
        for state, host in zip(states, hosts, strict=True):
            np.testing.assert_array_equal(state.get_value(), host)
    kinds = [type(command).__name__ for command in f.fn._current_entry().commit._commands]
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
        value = np.ones(call // 3 % 2 + 1, "float32")  # a plan for each of two shapes
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


#: Values are pairs of a buffer and what is in it.


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
    """As if all next values were computed elsewhere and written at once."""
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
