"""If kernels read host values only through lookup tables, a call writes the tables, and runs no host node."""

from __future__ import annotations

import numpy as np
import pytest
import theano
import theano.tensor as tt
from hypothesis import given, settings
from hypothesis import strategies as st
from theano.ifelse import ifelse

import optdb
from optdb.device.plans.steps import GuardedStep, TableUpload
from tests.effort import examples
from tests.opencl.simulator.made import simulated

ROWS, COLUMNS = 6, 5
X = np.random.RandomState(7).rand(ROWS, COLUMNS).astype("float32")
LABELS = [np.random.RandomState(seed).randint(0, COLUMNS, ROWS).astype("int32") for seed in range(4)]
#: The number of the batch for each call. The first calls are recorded; some batches occur again later, or twice in a
#: row.
TURNS = [0, 0, 0, 1, 1, 0, 2, 3, 0, 0, 1, 2, 2]


def classifier(prepare=lambda y: y, at_end=False):
    """Return a function that trains a classifier, the function's simulator, and the weights."""
    x, y = tt.fmatrix("x"), tt.ivector("y")
    w = theano.shared(np.eye(COLUMNS, dtype="float32"), "w")
    cost = tt.nnet.categorical_crossentropy(tt.nnet.softmax(x.dot(w)), prepare(y)).mean()
    f, sim = simulated(
        [x, y], [cost, w.sum()] if at_end else cost, updates=[(w, w - np.float32(0.5) * tt.grad(cost, w))]
    )
    return f, sim, w


def embedding(prepare=lambda words: words):
    """Return a function that trains selected rows of a table, the function's simulator, and the table."""
    words = tt.imatrix("words")
    table = theano.shared(np.random.RandomState(0).rand(COLUMNS, 3).astype("float32"), "table")
    rows = table[prepare(words).flatten()]
    cost = (rows**2).sum()
    f, sim = simulated([words], cost, updates=[(table, table - np.float32(0.1) * tt.grad(cost, table))])
    return f, sim, table


def assert_alike(got, expected):
    for result, wanted in zip(np.atleast_1d(got), np.atleast_1d(expected), strict=True):
        np.testing.assert_allclose(result, wanted, rtol=1e-4, atol=1e-6)


def plan_of(sim):
    return sim._executable.run.plans[-1]


def uploads_of(sim):
    return [step for step in plan_of(sim)._steps if isinstance(step, TableUpload)]


def let_nodes_fail(sim, monkeypatch):
    """Make the host nodes of plans raise an error when they run."""

    def fail(self, changed):
        raise AssertionError(f"node {self._number} computes")

    monkeypatch.setattr(GuardedStep, "_compute", fail)


@pytest.mark.parametrize("how", ["calls", "run_async", "call_n_times"])
def test_classes_change_and_no_node_computes(how, monkeypatch):
    f, sim, w = classifier()
    for number, turn in enumerate(TURNS):
        args = X + number, LABELS[turn]
        for _ in range(3 if how == "call_n_times" else 1):
            expected = f(*args)
        if how == "calls":
            got = sim(*args)
        else:
            got = sim.run_async(*args).wait() if how == "run_async" else sim.call_n_times(3, *args)
        assert_alike(got, expected)
        # The device's rounding differences accumulate over as many as 39 steps.
        np.testing.assert_allclose(sim.get(w), w.get_value(), rtol=1e-4, atol=1e-5)
        if number == 2:
            # One node computes the entropies and their gradient.
            assert len(uploads_of(sim)) == 1
            let_nodes_fail(sim, monkeypatch)


def test_commands_around_the_node_stay_together():
    _, sim, _ = classifier()
    for turn in TURNS:
        sim(X, LABELS[turn])
    steps = plan_of(sim)._steps
    assert [len(step.commands) for step in steps[:1]] == [0]
    assert len(steps) <= 3


def test_tables_beside_a_node_that_computes():
    x, y, rows = tt.fmatrix("x"), tt.ivector("y"), tt.lscalar("rows")
    w = theano.shared(np.eye(COLUMNS, dtype="float32"), "w")
    hidden = tt.tanh(x.dot(w))[:rows]
    cost = tt.nnet.categorical_crossentropy(tt.nnet.softmax(hidden.dot(w)), y).mean()
    f, sim = simulated([x, y, rows], cost, updates=[(w, w - np.float32(0.5) * tt.grad(cost, w))])
    more = np.concatenate([X, X])
    for turn in TURNS:
        assert_alike(sim(more, LABELS[turn], ROWS), f(more, LABELS[turn], ROWS))
        np.testing.assert_allclose(sim.get(w), w.get_value(), rtol=1e-4, atol=1e-6)
    assert uploads_of(sim)


@pytest.mark.parametrize("wrong", [-1, COLUMNS])
def test_a_class_out_of_bounds_is_the_nodes_error_and_changes_nothing(wrong):
    f, sim, w = classifier()
    for turn in TURNS:
        assert_alike(sim(X, LABELS[turn]), f(X, LABELS[turn]))
        before = sim.get(w)
        labels = LABELS[turn].copy()
        labels[2] = wrong
        with pytest.raises(ValueError, match=f"class {wrong} of {COLUMNS}"):
            sim(X, labels)
        np.testing.assert_array_equal(sim.get(w), before)


def test_batches_of_other_lengths_have_tables_of_their_own():
    f, sim, w = classifier()
    for number, turn in enumerate(TURNS * 2):
        rows = ROWS - number % 3
        assert_alike(sim(X[:rows], LABELS[turn][:rows]), f(X[:rows], LABELS[turn][:rows]))
    np.testing.assert_allclose(sim.get(w), w.get_value(), rtol=1e-4, atol=1e-6)


def test_too_few_classes_are_the_nodes_error():
    f, sim, _ = classifier(lambda y: y[y >= 0])
    for turn in TURNS:
        assert_alike(sim(X, LABELS[turn]), f(X, LABELS[turn]))
    with pytest.raises(ValueError, match="5 classes for 6 rows"):
        sim(X, np.array([0, 1, 2, -1, 3, 4], "int32"))
    assert_alike(sim(X, LABELS[0]), f(X, LABELS[0]))


def words_of(seed, shape=(2, 3)):
    return np.random.RandomState(seed).randint(-COLUMNS, COLUMNS, shape).astype("int32")


def test_rows_that_the_host_names(monkeypatch):
    f, sim, table = embedding()
    for number, turn in enumerate(TURNS):
        assert_alike(sim(words_of(turn)), f(words_of(turn)))
        np.testing.assert_allclose(sim.get(table), table.get_value(), rtol=1e-4, atol=1e-6)
        if number == 2:
            assert len(uploads_of(sim)) == 2


def test_rows_whose_number_depends_on_values():
    f, sim, table = embedding(lambda words: words[tt.ge(words, 0).nonzero()])
    for turn in TURNS:
        assert_alike(sim(words_of(turn)), f(words_of(turn)))
        np.testing.assert_allclose(sim.get(table), table.get_value(), rtol=1e-4, atol=1e-6)


def test_rows_out_of_bounds():
    f, sim, table = embedding()
    for turn in TURNS:
        assert_alike(sim(words_of(turn)), f(words_of(turn)))
        before = sim.get(table)
        with pytest.raises(IndexError, match="out of bounds"):
            sim(np.full((2, 3), COLUMNS, "int32"))
        np.testing.assert_array_equal(sim.get(table), before)


def test_a_branch_that_is_not_taken_does_not_see_its_classes():
    x, y, n = tt.fmatrix("x"), tt.ivector("y"), tt.lscalar("n")
    cost = tt.nnet.categorical_crossentropy(tt.nnet.softmax(x), y).mean()
    f = theano.function([x, y, n], ifelse(tt.gt(n, 0), cost, x.sum()), mode=theano.Mode(linker="vm"))
    sim = optdb.SimulatorOCL(f, device="dev0")
    bad = np.full(ROWS, COLUMNS, "int32")
    for turn in TURNS:
        assert_alike(sim(X, LABELS[turn], 1), f(X, LABELS[turn], 1))
        assert_alike(sim(X, bad, 0), f(X, bad, 0))
        with pytest.raises(ValueError, match="out of bounds"):
            sim(X, bad, 1)
    for turn in TURNS:
        assert_alike(sim(X, LABELS[turn], 1), f(X, LABELS[turn], 1))
    assert uploads_of(sim)
    assert_alike(sim(X, bad, 0), f(X, bad, 0))


def test_classes_that_a_node_overwrites_are_as_the_node_leaves_them():
    x, y = tt.fmatrix("x"), theano.In(tt.ivector("y"), mutable=True)
    classes = tt.set_subtensor(y.variable[1:3], 0)
    cost = tt.nnet.categorical_crossentropy(tt.nnet.softmax(x), classes).mean()
    mode = theano.Mode(linker="py", optimizer="fast_run")
    f = theano.function([x, theano.In(y.variable)], cost, mode=mode)
    sim = optdb.SimulatorOCL(theano.function([x, y], cost, mode=mode), device="dev0")
    for turn in TURNS:
        assert_alike(sim(X, LABELS[turn].copy()), f(X, LABELS[turn]))


def test_a_call_that_fails_after_the_upload_leaves_no_table_behind(monkeypatch):
    f, sim, w = classifier(at_end=True)
    for turn in TURNS[:3]:
        assert_alike(sim(X, LABELS[turn]), f(X, LABELS[turn]))
    plan = plan_of(sim)
    run = plan.run

    def fail(*args):
        run(*args)
        raise RuntimeError("no")

    for turn in (1, 0, 2, 2, 0):
        with monkeypatch.context() as patch:
            patch.setattr(plan, "run", fail)
            before = sim.get(w)
            with pytest.raises(RuntimeError, match="no"):
                sim(X, LABELS[turn])
            np.testing.assert_array_equal(sim.get(w), before)
        assert_alike(sim(X, LABELS[0]), f(X, LABELS[0]))


@settings(max_examples=examples(100, share=8))
@given(st.data())
def test_any_turns(data):
    f, sim, table = data.draw(st.sampled_from([classifier, embedding]))()
    is_classifier = f.maker.inputs[0].variable.name == "x"
    for _ in range(data.draw(st.integers(3, examples(12)))):
        rows, turn = data.draw(st.integers(0, ROWS)), data.draw(st.integers(0, 3))
        args = (X[:rows], LABELS[turn][:rows]) if is_classifier else (words_of(turn, (2, rows)),)
        if is_classifier and not rows:
            continue
        times = data.draw(st.sampled_from([1, 1, 4]))
        for _ in range(times):
            expected = f(*args)
        assert_alike(sim.call_n_times(times, *args), expected)
        np.testing.assert_allclose(sim.get(table), table.get_value(), rtol=1e-3, atol=1e-5)
