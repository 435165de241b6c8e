"""Plans run chains of small commands as persistent launches, with the same results."""

from __future__ import annotations

import itertools
import json
import logging
import sys
import threading
import time
from collections import Counter
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import theano
import theano.tensor as tt
from hypothesis import given, settings
from hypothesis import strategies as st

from optdb.device.launches import building, persistent, residencies
from optdb.opencl import get_context
from optdb.opencl.linking import patches as linking
from optdb.runtime import grid_failures, timing
from optdb.runtime.build import BuildError
from optdb.runtime.commands import EnqueueKernel
from optdb.runtime.errors import DeviceError
from optdb.runtime.grid_barriers import GRID_BARRIERS
from tests.effort import examples
from tests.opencl.simulator.made import chain, plan_of, simulated, training_step

pytestmark = pytest.mark.usefixtures("engine_where_quick")

WISHES = "never", "always", "split"
#: The number of calls in which a function is recorded, planned and merged, and then repeated twice.
CALLS = 4


@pytest.fixture(autouse=True)
def pocl(monkeypatch):
    if get_context("dev0").profile.short_name != "pocl":
        pytest.skip("one group does everything on processors; Oclgrind would take too long")
    # Without this, later downloads in this process would also read the flag words, which other tests would count.
    monkeypatch.setattr(grid_failures, "_words", {})


@pytest.fixture
def persist(monkeypatch):
    """Return a function that sets the flag `optdb.persistent_launches`."""

    def say(wish):
        monkeypatch.setattr(theano.config.optdb, "persistent_launches", wish)

    return say


@pytest.fixture
def refusing(monkeypatch):
    """Make the driver reject the program that merges launches."""

    def refuse(*args, **kwargs):
        raise BuildError("refused", "the driver's own words")

    monkeypatch.setattr(building, "make", refuse)


def meet_by(monkeypatch, barrier):
    """Make persistent launches use the given barrier even though their only group needs none."""
    choose = residencies.residency

    def chosen(context, wish):
        resident = choose(context, wish)
        return resident and replace(resident, barrier=replace(barrier, meets=False))

    monkeypatch.setattr(residencies, "residency", chosen)


@pytest.mark.slow
def test_many_commands_become_one(persist):
    x, w, value = chain(4)
    got, enqueued = {}, {}
    for wish in WISHES:
        persist(wish)
        _, sim = simulated([x], [value, value.max()], updates=[(w, w + value.sum() / 100)])
        got[wish] = [*(part for i in range(CALLS) for part in sim(np.ones((2, 3), "float32") * i)), sim.get(w)]
        enqueued[wish] = plan_of(sim).enqueued
    assert enqueued["never"] >= enqueued["split"] > 10 > 2 >= enqueued["always"]
    for one, *others in zip(*got.values()):
        for other in others:
            np.testing.assert_array_equal(one, other)


@pytest.mark.slow
@pytest.mark.parametrize("wish", ["always", "split"])
def test_training(each_device_kind, persist, wish):
    persist(wish)
    f, sim, w, data = training_step()
    for _ in range(CALLS):
        np.testing.assert_allclose(sim(*data), f(*data), rtol=1e-5)
    np.testing.assert_allclose(sim.call_n_times(9, *data), [f(*data) for _ in range(9)][-1], rtol=1e-4)
    np.testing.assert_allclose(sim.run_async(*data).wait(), f(*data), rtol=1e-4)
    np.testing.assert_allclose(sim.get(w), w.get_value(), rtol=1e-4, atol=1e-5)
    sim.set(w, np.zeros((20, 5), "float32"))
    w.set_value(np.zeros((20, 5), "float32"))
    for _ in range(CALLS):
        np.testing.assert_allclose(sim(*data), f(*data), rtol=1e-4)


@pytest.mark.slow
def test_loops_copies_and_fills(each_device_kind, persist):
    x = tt.fmatrix("x")
    states, _ = theano.scan(lambda row, state: tt.tanh(row + state * 0.5), sequences=x, outputs_info=tt.zeros((4,)))
    rng = np.random.RandomState(0)
    for wish in ("always", "split"):
        persist(wish)
        f, sim = simulated([x], [states, tt.concatenate([states, x]).sum(axis=0)])
        for _ in range(CALLS):
            data = rng.randn(6, 4).astype("float32")
            for got, expected in zip(sim(data), f(data)):
                np.testing.assert_allclose(got, expected, rtol=1e-4)
        assert plan_of(sim).enqueued < plan_of(sim).commands


@pytest.mark.slow
@pytest.mark.parametrize(("groups", "are_halved"), [(3, False), (4, True), (64, True)])
def test_products_are_halved_where_groups_would_idle(each_device_kind, persist, monkeypatch, groups, are_halved):
    if each_device_kind != "gpu":
        pytest.skip("a processor has other kernels")
    halved = []
    launches_of = persistent.PersistentProgram._halved
    monkeypatch.setattr(
        persistent.PersistentProgram, "_halved", lambda *args: halved.append(launches_of(*args)) or halved[-1]
    )
    monkeypatch.setattr(residencies, "_SPLIT_GROUPS", groups)
    context = get_context("dev0")
    monkeypatch.setattr(context, "options", replace(context.options, quad_tiles="all"))
    x = tt.fmatrix("x")
    rng = np.random.RandomState(0)
    first, second = (theano.shared(rng.uniform(-1, 1, (64, 64)).astype("float32")) for _ in range(2))
    got = {}
    data = rng.uniform(-1, 1, (32, 64)).astype("float32")
    for wish in ("never", "split"):
        persist(wish)
        f, sim = simulated([x], [tt.tanh(tt.tanh(tt.tanh(x).dot(first)).dot(second)).dot(first) + 1])
        for _ in range(CALLS):
            (got[wish],) = sim(data)
    np.testing.assert_allclose(got["split"], f(data)[0], atol=1e-4)
    np.testing.assert_array_equal(got["split"], got["never"])
    assert any(halved) == are_halved


@pytest.mark.slow
def test_copies_to_parts_of_an_array_are_independent(persist):
    persist("split")
    x = tt.fmatrix("x")
    f, sim = simulated([x], [tt.concatenate([tt.tanh(x) + n for n in range(12)]) * 2])
    data = np.random.RandomState(0).randn(3, 4).astype("float32")
    for _ in range(CALLS):
        np.testing.assert_allclose(sim(data)[0], f(data)[0], rtol=1e-5)
    # There are three phases: partial products, copies, and the product. If a launch is split, each phase is a separate
    # launch.
    assert plan_of(sim).commands > 12 and plan_of(sim).enqueued <= 4


STEPS = [
    lambda a, b: tt.concatenate([a, b] * 5)[5 : 5 + a.shape[0]],
    lambda a, b: tt.tanh(a) + b,
    lambda a, b: a * b.sum(axis=0),
    lambda a, b: a - b.mean(axis=1, keepdims=True),
    lambda a, b: a.dot(b.T).dot(a) / 100,
    lambda a, b: tt.switch(a > 0, b, -a),
    lambda a, b: tt.concatenate([a, b])[: a.shape[0]],
    lambda a, b: tt.inc_subtensor(a[:, 1:], b[:, :-1]),
    lambda a, b: a[::-1] + tt.nnet.softmax(b),
    lambda a, b: tt.zeros_like(a) + b,
]


@pytest.mark.slow
@settings(max_examples=examples(15))
@given(
    st.integers(0, 2**32 - 1),
    st.lists(st.integers(0, len(STEPS) - 1), min_size=3, max_size=12),
    st.sampled_from([0, 1, 5, 70]),
    st.sampled_from([0, 1, 1 << 12]),
)
def test_random_functions(seed, choices, rows, max_tiles):
    """Commands with too many tiles keep their own launches; other commands are reordered around these."""
    x, w = tt.fmatrix("x"), theano.shared(np.linspace(-1, 1, 4 * rows).reshape(rows, 4).astype("float32"), "w")
    values = [w, x]
    rng = np.random.RandomState(seed)
    for choice in choices:
        values.append(STEPS[choice](values[-1], values[rng.randint(len(values))]))
    data = [rng.uniform(-1, 1, (rows, 4)).astype("float32") for _ in range(CALLS)]
    got = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(residencies, "_MAX_TILES_ALONE", max_tiles)
        for wish in WISHES:
            with theano.change_flags(**{"optdb.persistent_launches": wish}):
                outputs = [values[-1], values[len(values) // 2]]
                _, sim = simulated([x], outputs, updates=[(w, tt.tanh(values[-2] + w))])
                got.append([*(part for one in data for part in sim(one)), sim.get(w)])
    for one, *others in zip(*got):
        for other in others:
            np.testing.assert_array_equal(one, other)


@pytest.mark.slow
def test_a_missing_dependency_shows(persist, monkeypatch):
    """If dependencies are not recorded, and phases are split, dependent commands run in the wrong order."""
    persist("split")
    x, _, value = chain(6)
    f, sim = simulated([x], value)
    monkeypatch.setattr(persistent, "roomy_phases_of", lambda commands, *_: [0 for _ in commands])
    data = np.ones((2, 3), "float32")
    assert any(not np.allclose(sim(data * i), f(data * i)) for i in range(1, 2 * CALLS))


@pytest.mark.slow
def test_a_launch_that_never_gets_its_groups_is_an_error(persist, monkeypatch):
    """The barrier waits for one more group than there are, so the launch is aborted, which raises an error."""
    persist("always")
    atomics = GRID_BARRIERS["atomics"]
    meet_by(monkeypatch, replace(atomics, wait=atomics.wait.replace("* groups", "* (groups + 1)")))
    monkeypatch.setattr(persistent, "_POLLS", 1 << 10)
    x, _, value = chain(4)
    f, sim = simulated([x], value)
    data = np.ones((2, 3), "float32")
    np.testing.assert_allclose(sim(data), f(data), rtol=1e-5)  # recorded
    for _ in range(2):
        with pytest.raises(DeviceError, match=r"was aborted.*\n.*persistent_launches=never"):
            sim(data)
    with pytest.raises(DeviceError, match="was aborted"):
        sim.run_async(data).wait()
    persist("never")
    _, sim = simulated([x], value)
    for _ in range(CALLS):
        np.testing.assert_allclose(sim(data), f(data), rtol=1e-5)


@pytest.mark.slow
def test_a_grid_barrier_of_one_group_computes_the_same(persist, monkeypatch):
    persist("always")
    meet_by(monkeypatch, GRID_BARRIERS["atomics"])
    x, _, value = chain(4)
    f, sim = simulated([x], value)
    for i in range(CALLS):
        data = np.full((2, 3), i, "float32")
        np.testing.assert_allclose(sim(data), f(data), rtol=1e-5)
    words = np.ones(3, np.uint32)
    queue = get_context("dev0").queue
    grid_failures.cl.enqueue_copy(queue, words, grid_failures.grid_words(get_context("dev0").cl_context))
    assert not words.any()


def test_a_refusal_by_the_driver_is_told_and_nothing_is_lost(persist, refusing, caplog):
    persist("always")
    x, _, value = chain(4)
    f, sim = simulated([x], value)
    data = np.ones((2, 3), "float32")
    with caplog.at_level(logging.WARNING):
        for _ in range(CALLS):
            np.testing.assert_allclose(sim(data), f(data), rtol=1e-5)
    assert caplog.text.count("the driver's own words") == 1
    assert plan_of(sim).enqueued == plan_of(sim).commands


def test_no_processor_has_persistent_launches_by_default(persist):
    persist("auto")
    context = get_context("dev0")
    assert not context.profile.quirks.persistent_launches
    assert residencies.residency(context, "auto") is None


@pytest.fixture
def pays(persist, monkeypatch):
    """Return a function that sets the call from which persistent launches are worthwhile, and their measured times.

    Programs are built in this process, which takes less time than in a child process.
    """
    monkeypatch.setattr(persistent, "build_in_child", building.build)

    def say(calls=3, medians=(2.0, 1.0, 3.0), ways=((4, 2), (1, 2))):
        persist("auto")
        context = get_context("dev0")
        # A chain of three layers has about ten commands, some of which use the same kernel.
        quirks = replace(context.profile.quirks, persistent_launches=True, kernel_compile_s=calls * 1e-5, launch_s=1e-5)
        monkeypatch.setattr(context, "profile", replace(context.profile, quirks=quirks))
        monkeypatch.setattr(persistent, "_CONFIGURATIONS", ways)
        monkeypatch.setattr(timing.StepTrial, "medians", medians)

    return say


def called_until(sim, is_reached, of=lambda sim: sim(np.ones((2, 3), "float32"))):
    """Call a function until a condition holds; return the number of calls."""
    until = time.monotonic() + 60
    for calls in itertools.count(1):
        of(sim)
        if calls > 1 and is_reached(plan_of(sim)):
            return calls
        assert time.monotonic() < until


@pytest.mark.parametrize(
    ("medians", "is_merged"),
    [((2.0, 1.0, 3.0), True), ((1.0, 2.0, 3.0), False), ((1.0, 1.02, 3.0), True), ((1.0, 1.04, 3.0), False)],
)
def test_the_quicker_way_stays_or_the_one_of_fewer_launches(pays, medians, is_merged):
    pays(medians=medians)
    x, w, value = chain(3)
    f, sim = simulated([x], value, updates=[(w, w + value.sum() / 100)])
    seen = set()
    for _ in range(3):
        sim(np.ones((2, 3), "float32"))
        f(np.ones((2, 3), "float32"))
    unmerged = plan_of(sim).enqueued

    def is_done(plan):
        seen.add(plan.enqueued)
        return plan._merging.done

    called_until(sim, is_done, lambda sim: [sim(np.ones((2, 3), "float32")), f(np.ones((2, 3), "float32"))])
    np.testing.assert_allclose(sim.get(w), w.get_value(), rtol=1e-5)
    assert max(seen) == unmerged
    assert min(seen) <= 3
    assert plan_of(sim).enqueued == (min(seen) if is_merged else unmerged)


@pytest.mark.parametrize("quickest", [0, 1, 2])
def test_the_smallest_commands_alone_are_tried_too(pays, monkeypatch, quickest):
    pays(medians=[float(way != quickest) for way in range(3)])

    def max_tiles(self, command):
        return 10**6 * (self.max_rounds > 1 or not getattr(command, "name", "").startswith("matmul"))

    monkeypatch.setattr(residencies.Residency, "max_tiles", max_tiles)
    f, sim, w, data = training_step()
    enqueued = []

    def call(sim):
        np.testing.assert_allclose(sim(*data), f(*data), rtol=1e-4, atol=1e-6)

    def is_done(plan):
        enqueued.append(plan.enqueued)
        return plan._merging.done

    called_until(sim, is_done, call)
    assert len(set(enqueued)) == 3
    call(sim)
    np.testing.assert_allclose(sim.get(w), w.get_value(), rtol=1e-4, atol=1e-5)
    most, some, *_ = sorted(set(enqueued))
    assert plan_of(sim).enqueued == [max(enqueued), most, some][quickest]


@pytest.mark.parametrize("quickest", [1, 2])
def test_long_runs_alone_are_tried_too(pays, monkeypatch, quickest):
    """A product separates a short chain of commands from a long one; merging only the long chain is also tried."""
    pays(medians=[float(way != quickest) for way in range(3)], ways=((4, 2), (4, 6)))
    monkeypatch.setattr(
        residencies.Residency,
        "max_tiles",
        lambda _, command: 10**6 * (not getattr(command, "name", "").startswith("matmul")),
    )
    x, w = tt.fmatrix("x"), theano.shared(np.linspace(-1, 1, 12).reshape(3, 4).astype("float32"), "w")
    value = tt.nnet.softmax(x) - x.sum(axis=0)
    value = value.dot(w)
    for _ in range(4):
        value = tt.nnet.softmax(value - value.sum(axis=0))
    f, sim = simulated([x], value, updates=[(w, w * np.float32(0.9))])
    enqueued = []

    def is_done(plan):
        enqueued.append(plan.enqueued)
        return plan._merging.done

    data = np.ones((2, 3), "float32")
    called_until(sim, is_done, lambda sim: np.testing.assert_allclose(sim(data), f(data), rtol=1e-5))
    np.testing.assert_allclose(sim(data), f(data), rtol=1e-5)
    most, some, *_ = sorted(set(enqueued))
    assert plan_of(sim).enqueued == [most, some][quickest - 1]


def test_steps_of_many_are_merged_too(pays):
    pays(calls=1000)
    x, _, value = chain(3)
    f, sim = simulated([x], value)
    data = np.ones((2, 3), "float32")
    called_until(sim, lambda plan: plan._merging.done, lambda sim: sim.call_n_times(200, data))
    assert plan_of(sim).enqueued <= 2
    np.testing.assert_allclose(sim.call_n_times(3, data), f(data), rtol=1e-5)


def test_what_is_on_disk_is_loaded_soon(pays, monkeypatch):
    pays(calls=10**9)
    x, _, value = chain(3)
    _, sim = simulated([x], value)
    for _ in range(20):
        sim(np.ones((2, 3), "float32"))
    assert not plan_of(sim).is_settled
    monkeypatch.setattr(building.ProgramDescription, "was_built", lambda *args: True)
    _, sim = simulated([x], value)
    called_until(sim, lambda plan: plan._merging.done)
    assert plan_of(sim).enqueued <= 2


def test_nothing_waits_until_it_is_known_whether_groups_can_meet(pays, monkeypatch):
    pays()
    is_tried = False
    monkeypatch.setattr(residencies, "is_decided", lambda context, wish: is_tried)
    x, _, value = chain(3)
    f, sim = simulated([x], value)
    data = np.ones((2, 3), "float32")
    for _ in range(20):
        np.testing.assert_allclose(sim.call_n_times(2, data), f(data), rtol=1e-5)
    assert plan_of(sim).enqueued == plan_of(sim).commands
    is_tried = True
    called_until(sim, lambda plan: plan._merging.done)
    assert plan_of(sim).enqueued <= 2
    np.testing.assert_allclose(sim(data), f(data), rtol=1e-5)


def test_what_calls_would_wait_for_begins_while_a_function_is_linked(monkeypatch):
    asked, built = [], []
    monkeypatch.setattr(linking, "is_decided", lambda context, wish: asked.append((context, wish)))
    monkeypatch.setattr(linking, "build_early", built.append)
    x, _, value = chain(3)
    simulated([x], value)
    context = get_context("dev0")
    assert asked == [(context, theano.config.optdb.persistent_launches)]
    assert built == [context]


def test_a_refusal_in_the_background_is_told_and_nothing_is_lost(pays, refusing, caplog):
    pays()
    x, _, value = chain(3)
    f, sim = simulated([x], value)
    data = np.ones((2, 3), "float32")
    with caplog.at_level(logging.WARNING):
        called_until(sim, lambda plan: plan._merging.done)
    np.testing.assert_allclose(sim(data), f(data), rtol=1e-5)
    assert caplog.text.count("the driver's own words") == 1
    assert plan_of(sim).enqueued == plan_of(sim).commands


def test_no_call_does_what_is_to_be_done_in_the_background(pays, monkeypatch):
    """Calls do no background work themselves: a few more calls return while the test holds this work back."""
    pays()
    reached, goes_on = [], threading.Event()

    def slowly(owner, name):
        does = getattr(owner, name)

        def do(*args, **kwargs):
            assert threading.current_thread() is not threading.main_thread()
            goes_on.clear()
            reached.append(name)
            assert goes_on.wait(60)
            return does(*args, **kwargs)

        monkeypatch.setattr(owner, name, do)

    slowly(persistent.PersistentMerger, "find_commands")
    slowly(persistent, "build_in_child")
    slowly(persistent, "addresses_of")
    slowly(persistent.PersistentProgram, "merged")
    x, w, value = chain(3)
    f, sim = simulated([x], value, updates=[(w, w + value.sum() / 100)])
    data = np.ones((2, 3), "float32")
    calls_at = Counter()

    def call(sim):
        np.testing.assert_allclose(sim(data), f(data), rtol=1e-5)
        calls_at[len(reached)] += 1
        if calls_at[len(reached)] > 20:
            goes_on.set()

    called_until(sim, lambda plan: plan._merging.done, call)
    assert set(reached) == {"find_commands", "build_in_child", "addresses_of", "merged"}
    assert all(calls_at[count] > 20 for count in range(1, len(reached) + 1))
    assert plan_of(sim).enqueued <= 3


@pytest.fixture
def described(monkeypatch):
    """Return a list to which the descriptions of programs are appended."""
    made, make = [], building.ProgramDescription
    monkeypatch.setattr(persistent, "ProgramDescription", lambda *args: made.append(make(*args)) or made[-1])
    return made


@pytest.mark.slow
def test_another_process_writes_and_builds_the_program(pays, monkeypatch, described):
    pays()
    monkeypatch.setattr(persistent, "build_in_child", building.build_in_child)
    written = building.ProgramDescription.written
    monkeypatch.setattr(building.ProgramDescription, "written", lambda _: pytest.fail("it is written in this process"))
    x, w, value = chain(3)
    f, sim = simulated([x], value, updates=[(w, w + value.sum() / 100)])
    data = np.ones((2, 3), "float32")
    call = lambda sim: np.testing.assert_allclose(sim(data), f(data), rtol=1e-5)  # noqa: E731
    called_until(sim, lambda plan: plan._merging.done, call)
    call(sim)
    assert plan_of(sim).enqueued <= 2
    (description,) = described
    context = get_context("dev0")
    again = building.ProgramDescription.of_json(json.loads(description.json), context)
    assert again.json == description.json
    assert written(again)[0] == written(description)[0]
    assert building._built_in_child(context, description) == written(description)


@pytest.mark.parametrize("command", [["no-such-program"], [sys.executable, "-c", "print('no program')"]])
def test_without_another_process_the_program_is_built_here(pays, monkeypatch, caplog, command):
    pays()
    monkeypatch.setattr(persistent, "build_in_child", building.build_in_child)
    told = []
    monkeypatch.setattr(building.children, "command", lambda *args: told.append(args) or command)
    x, _, value = chain(3)
    f, sim = simulated([x], value)
    data = np.ones((2, 3), "float32")
    with caplog.at_level(logging.INFO):
        called_until(sim, lambda plan: plan._merging.done)
    assert "building a persistent kernel in this process" in caplog.text
    kept = building.binaries.current()
    assert [args[1:] for args in told] == [(get_context("dev0").spec, str(kept.folder), str(kept.limit >> 20))]
    np.testing.assert_allclose(sim(data), f(data), rtol=1e-5)
    assert plan_of(sim).enqueued <= 2


def test_what_was_built_is_known_to_later_processes(pays, monkeypatch, described, tmp_path):
    pays()
    monkeypatch.setattr(building.binaries, "for_device", lambda _: building.binaries.Binaries(tmp_path))
    monkeypatch.setattr(persistent, "build_in_child", building.build_in_child)
    monkeypatch.setattr(building, "_built_in_child", lambda *_: None)
    due, find = [], persistent.PersistentMerger.find_commands
    monkeypatch.setattr(
        persistent.PersistentMerger, "find_commands", lambda merger: due.append(find(merger)) or due[-1]
    )
    x, _, value = chain(3)
    context = get_context("dev0")
    for was_built in (False, True):
        _, sim = simulated([x], value)
        sim(np.ones((2, 3), "float32"))
        called_until(sim, lambda plan: plan._merging.done)
        assert due[-1] == 0 if was_built else due[-1] > 0
        assert described[-1].was_built(context)


def test_an_error_in_a_timed_call_does_not_count(pays):
    pays()
    x, w, value = chain(3)
    index = tt.lscalar("index")
    f, sim = simulated([x, index], value[index], updates=[(w, w + value.sum() / 100)])
    data = np.ones((2, 3), "float32")

    def call(sim):
        with pytest.raises(IndexError):
            sim(data, 7)
        np.testing.assert_allclose(sim(data, 1), f(data, 1), rtol=1e-5)

    called_until(sim, lambda plan: plan._merging.done, call)
    np.testing.assert_allclose(sim.get(w), w.get_value(), rtol=1e-5)


def test_large_tiles_and_many_of_teams_have_launches_of_their_own(monkeypatch):
    barrier = replace(GRID_BARRIERS["atomics"], meets=True)
    resident = residencies.Residency(get_context("dev0"), barrier, 132, 256)
    monkeypatch.setattr(residencies, "synchronizes", lambda command: command.name.startswith("fold"))

    def most(name):
        return resident.max_tiles(EnqueueKernel(None, SimpleNamespace(function_name=name), (256,), (256,), ()))

    assert most("matmul_128x128x8_16x8__3") == most("matmul_128x64x8_8x8") == 0
    assert most("matmul_64x64x16_8x4") == most("matmul_32x32x16_2x2__1") == most("matmul_total__1") == 264
    assert most("fold_across__2") == 132
    assert most("elements_quads__0") == 4 * 132
