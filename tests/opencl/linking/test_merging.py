"""Plans merge small launches, with the same results."""

from __future__ import annotations

import logging
from dataclasses import replace

import numpy as np
import pytest
import theano
import theano.tensor as tt
from hypothesis import given, settings
from hypothesis import strategies as st

from optdb.device.launches import sequential
from optdb.opencl import contexts, get_context
from optdb.opencl.registry import context_of
from optdb.runtime.build import BuildError
from tests.distributed.training import two_devices
from tests.effort import examples
from tests.opencl.simulator.made import chain, plan_of, simulated, training_step

pytestmark = pytest.mark.usefixtures("engine_where_quick")


@pytest.fixture(autouse=True)
def pocl(monkeypatch):
    profile = get_context("dev0").profile
    if not profile.is_processor or not profile.quirks.launch_s:
        pytest.skip("launches are merged so on PoCL alone")
    monkeypatch.setattr(theano.config.optdb, "persistent_launches", "never")


@pytest.fixture
def merge(monkeypatch):
    """Return a function that sets when launches are merged."""

    def say(wish):
        monkeypatch.setattr(theano.config.optdb, "merge_launches", wish)

    return say


#: Number of calls after which merged launches have run twice: recorded, planned, probing, merged and repeated calls.
CALLS = 2 + sequential.PROBED_CALLS + 2


def compiles_in(monkeypatch, seconds):
    """Make the device's profile report how long it takes to compile a kernel."""
    profile = get_context("dev0").profile
    quick = replace(profile, quirks=replace(profile.quirks, kernel_compile_s=seconds))
    monkeypatch.setattr(sequential, "profile_of", lambda device: quick)


def enqueued(sim):
    return len(plan_of(sim).unconditional_commands())


@pytest.mark.slow
def test_many_launches_become_few(merge):
    x, w, value = chain(10)
    got = {}
    for wish in ("never", "always"):
        merge(wish)
        _, sim = simulated([x], [value, value.max()], updates=[(w, w + value.sum() / 100)])
        got[wish] = [sim(np.ones((2, 3), "float32") * i) for i in range(CALLS)], sim.get(w), enqueued(sim)
    assert got["never"][2] > 30
    assert got["always"][2] < 5
    for one, other in zip(got["never"][0], got["always"][0]):
        for a, b in zip(one, other):
            np.testing.assert_array_equal(a, b)
    np.testing.assert_array_equal(got["never"][1], got["always"][1])


@pytest.mark.slow
def test_state_goes_on(merge):
    merge("always")
    f, sim, w, data = training_step()
    for _ in range(2 * CALLS):
        np.testing.assert_allclose(sim(*data), f(*data), rtol=1e-5)
    np.testing.assert_allclose(sim.call_n_times(40, *data), [f(*data) for _ in range(40)][-1], rtol=1e-4)
    np.testing.assert_allclose(sim.get(w), w.get_value(), rtol=1e-4, atol=1e-5)
    sim.set(w, np.zeros((20, 5), "float32"))
    w.set_value(np.zeros((20, 5), "float32"))
    for _ in range(CALLS):
        np.testing.assert_allclose(sim(*data), f(*data), rtol=1e-4)


@pytest.mark.slow
def test_launches_of_two_devices_are_merged_by_each(merge, monkeypatch):
    merge("always")
    devices = two_devices()
    names = [context_of(device) for device in devices]
    mode = theano.compile.get_default_mode().including("opencl")
    monkeypatch.setattr(contexts, "default", names[0])
    start = np.linspace(0, 1, 9, dtype="float32").reshape(3, 3)
    states = [theano.shared(start + number, target=name) for number, name in enumerate(names)]
    following = list(states)
    for _ in range(6):
        following = [tt.nnet.softmax(value - value.sum(axis=0)) + n for n, value in enumerate(following)]
    f = theano.function([], [], updates=list(zip(states, following)), mode=mode)
    hosts = [theano.shared(state.get_value()) for state in states]
    for value, state, host in zip(following, states, hosts):
        host.default_update = theano.clone(value, {state: host})
    g = theano.function([], [], updates=[(host, host.default_update) for host in hosts], no_default_updates=True)
    for _ in range(CALLS):
        f()
        g()
    for state, host in zip(states, hosts):
        np.testing.assert_allclose(state.get_value(), host.get_value(), rtol=1e-5)
    (plan,) = f.fn.plans
    assert plan.enqueued < plan.commands


@pytest.mark.slow
def test_values_of_the_host_that_change_are_seen(merge):
    merge("always")
    x, i = tt.fmatrix("x"), tt.iscalar("i")
    part = tt.tanh(x * 2)[:, i]
    f, sim = simulated([x, i], [tt.exp(part).sum() + tt.exp(-part).sum(), tt.set_subtensor(x[0, i], 0) * 2])
    data = np.arange(12, dtype="float32").reshape(3, 4) / 10
    for number in [0] * CALLS + [1, 2, 3, 3, 0]:
        for got, expected in zip(sim(data, number), f(data, number)):
            np.testing.assert_allclose(got, expected, rtol=1e-6)


@pytest.mark.slow
def test_loops_copies_and_fills(merge):
    merge("always")
    x = tt.fmatrix("x")
    states, _ = theano.scan(lambda row, state: tt.tanh(row + state * 0.5), sequences=x, outputs_info=tt.zeros((4,)))
    f, sim = simulated([x], [states, tt.concatenate([states, x]).sum(axis=0)])
    rng = np.random.RandomState(0)
    for _ in range(CALLS):
        data = rng.randn(6, 4).astype("float32")
        for got, expected in zip(sim(data), f(data)):
            np.testing.assert_allclose(got, expected, rtol=1e-4)
    assert enqueued(sim) < plan_of(sim).commands / 4


@pytest.mark.slow
@settings(max_examples=examples(15))
@given(st.integers(0, 2**32 - 1), st.lists(st.integers(0, 7), min_size=3, max_size=12), st.sampled_from([0, 1, 5, 70]))
def test_random_functions(seed, choices, rows):
    x = tt.fmatrix("x")
    values = [x]
    steps = [
        lambda a, b: tt.tanh(a) + b,
        lambda a, b: a * b.sum(axis=0),
        lambda a, b: a - b.mean(axis=1, keepdims=True),
        lambda a, b: a.dot(b.T).dot(a) / 100,
        lambda a, b: tt.switch(a > 0, b, -a),
        lambda a, b: tt.concatenate([a, b])[: a.shape[0]],
        lambda a, b: tt.inc_subtensor(a[:, 1:], b[:, :-1]),
        lambda a, b: a[::-1] + tt.nnet.softmax(b),
    ]
    rng = np.random.RandomState(seed)
    for choice in choices:
        values.append(steps[choice](values[-1], values[rng.randint(len(values))]))
    data = [rng.uniform(-1, 1, (rows, 4)).astype("float32") for _ in range(CALLS)]
    got = []
    for wish in ("never", "always"):
        with theano.change_flags(**{"optdb.merge_launches": wish}):
            _, sim = simulated([x], [values[-1], values[len(values) // 2]])
            got.append([sim(one) for one in data])
    for one, other in zip(*got):
        for a, b in zip(one, other):
            np.testing.assert_array_equal(a, b)


@pytest.mark.slow
def test_it_waits_until_it_pays(merge, monkeypatch):
    merge("auto")
    x, _, value = chain(4)
    data = np.ones((2, 3), "float32")
    _, sim = simulated([x], value)
    for _ in range(CALLS):
        sim(data)
    assert enqueued(sim) == plan_of(sim).commands

    compiles_in(monkeypatch, 1e-5)
    _, sim = simulated([x], value)
    seen = []
    for _ in range(30):
        sim(data)
        seen.append(0 if len(seen) < 1 else enqueued(sim))
    assert seen[2] == plan_of(sim).commands
    assert seen[-1] < 5


@pytest.mark.slow
def test_many_calls_to_come_are_reason_enough(merge, monkeypatch):
    merge("auto")
    compiles_in(monkeypatch, 1e-3)
    f, sim, _, data = training_step()
    expected = [f(*data) for _ in range(5000)][-1]
    np.testing.assert_allclose(sim.call_n_times(5000, *data), expected, rtol=1e-3)
    assert enqueued(sim) < plan_of(sim).commands


@pytest.mark.slow_cases("0-True")
@pytest.mark.parametrize("seconds, merged", [(0, True), (1, False)])
def test_launches_of_several_items_are_looked_at(merge, monkeypatch, seconds, merged):
    merge("always")
    monkeypatch.setattr(sequential.Probe, "small", not seconds)
    x = tt.fvector("x")
    y = x
    for _ in range(6):
        y = tt.exp(-y).sum(keepdims=True) * x
    f, sim = simulated([x], y)
    data = np.linspace(0, 1, 20_000, dtype="float32")
    expected = f(data)
    for _ in range(CALLS):
        np.testing.assert_allclose(sim(data), expected, rtol=1e-4)
    assert (enqueued(sim) < 4) == merged


def test_a_refusal_by_the_driver_is_told_and_nothing_is_lost(merge, monkeypatch, caplog):
    merge("always")

    def refuse(*args, **kwargs):
        raise BuildError("refused", "the driver's own words")

    monkeypatch.setattr(sequential, "make", refuse)
    x, _, value = chain(4)
    f, sim = simulated([x], value)
    data = np.ones((2, 3), "float32")
    with caplog.at_level(logging.WARNING):
        for _ in range(CALLS):
            np.testing.assert_allclose(sim(data), f(data), rtol=1e-5)
    assert caplog.text.count("the driver's own words") <= 1
    assert enqueued(sim) == plan_of(sim).commands
