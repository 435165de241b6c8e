"""Simulators can be closed and reset, have signatures, show progress bars, and print their graphs."""

from __future__ import annotations

import gc
import inspect
import io
import pickle
import sys
import weakref

import numpy as np
import pytest
import theano
import theano.tensor as tt

import optdb
from optdb.device import progress
from optdb.opencl.simulator import SimulatorClosed
from tests.opencl.simulator.made import simulated, training_step


def counter():
    """Return a function that counts in a shared variable, and a simulator of it."""
    n = theano.shared(np.float32([0]), name="n")
    step = tt.fvector("step")
    f, sim = simulated([step], n + step, updates=[(n, n + step)])
    return f, sim, n


ONE = np.float32([1])


def test_reset_starts_over():
    _, sim, _, data = training_step()
    losses = [sim(*data) for _ in range(5)]
    assert losses[0] != losses[-1]
    sim.reset()
    np.testing.assert_array_equal([sim(*data) for _ in range(5)], losses)


def test_reset_takes_theanos_present_values():
    _, sim, n = counter()
    sim(ONE)
    n.set_value(np.float32([10]))
    sim.reset()
    assert sim(ONE) == [11]


def test_reset_takes_inputs_with_updates_along():
    total = tt.fvector("total")
    f = theano.function([theano.In(total, value=np.float32([5]), update=total + 1)], total * 2)
    sim = optdb.SimulatorOCL(f, device="dev0")
    assert [sim().tolist() for _ in range(3)] == [[10], [12], [14]]
    sim.reset()
    assert sim().tolist() == [10]
    assert f().tolist() == [10]


@pytest.mark.usefixtures("alone")
@pytest.mark.slow
def test_a_closed_simulator_holds_no_memory():
    _, sim, _ = counter()
    sim(ONE)
    held = [weakref.ref(sim._executable), weakref.ref(next(iter(sim._state)).cell[0])]
    sim.close()
    gc.collect()
    assert [ref() for ref in held] == [None, None]
    assert sim.closed
    sim.close()


@pytest.mark.parametrize(
    "use",
    [
        lambda sim: sim(ONE),
        lambda sim: sim.call_n_times(2, ONE),
        lambda sim: sim.run_async(ONE),
        lambda sim: sim.get("n"),
        lambda sim: sim.sync_to_theano(),
        lambda sim: sim.reset(),
        lambda sim: sim.check(ONE),
        lambda sim: sim.memory(ONE),
        lambda sim: sim.shared,
        lambda sim: sim.functions,
        lambda sim: sim["other"],
        lambda sim: sim.other,
        lambda sim: sim.add_method("another", theano.function([], [])),
        lambda sim: pickle.dumps(sim),
        lambda sim: theano.printing.debugprint(sim),
    ],
)
def test_a_closed_simulator_says_so(use):
    f, sim, _ = counter()
    sim.close()
    with pytest.raises(SimulatorClosed, match=r"closed SimulatorOCL.*: its memory on the device was released. Create"):
        use(sim)
    assert optdb.SimulatorOCL(f, device="dev0")(ONE) == [1]


def test_a_with_block_closes():
    f, _, n = counter()
    with optdb.SimulatorOCL(f, device="dev0") as sim:
        assert not sim.closed
        sim(ONE)
        sim.sync_to_theano()
    assert sim.closed
    assert n.get_value() == [1]
    with pytest.raises(ZeroDivisionError), optdb.SimulatorOCL(f, device="dev0") as other:
        raise ZeroDivisionError
    assert other.closed


def test_methods_close_too():
    f, sim, _ = counter()
    sim.add_method("again", f)
    again = sim.again
    assert again(ONE) == [1]
    sim.close()
    with pytest.raises(SimulatorClosed):
        again(ONE)


@pytest.mark.parametrize(
    ("inputs", "expected"),
    [
        (lambda: [tt.fvector("x"), tt.scalar("y")], "(x, y)"),
        (lambda: [tt.fvector("x"), theano.In(tt.scalar("y"), value=2)], "(x, y=2)"),
        (lambda: [tt.fvector("x"), tt.scalar()], "(x, input_1, /)"),
        (lambda: [tt.scalar(), tt.fvector("x")], "(input_0, /, x)"),
        (lambda: [theano.In(tt.scalar("y"), value=2), tt.fvector("x")], "(y=2, *, x)"),
        (lambda: [tt.fvector("class"), tt.fvector("a b")], "(input_0, input_1, /)"),
        (lambda: [], "()"),
    ],
)
def test_signatures(inputs, expected):
    variables = inputs()
    f = theano.function(variables, [], on_unused_input="ignore", mode="FAST_COMPILE")
    sim = optdb.SimulatorOCL(f, device="dev0")
    sim.add_method("again", f)
    for callee in (sim, sim.again, pickle.loads(pickle.dumps(sim))):
        signature = inspect.signature(callee)
        bare = [p.replace(annotation=inspect.Parameter.empty) for p in signature.parameters.values()]
        assert str(signature.replace(parameters=bare)) == expected


def test_signatures_leave_shared_variables_out_and_name_types():
    _, sim, _ = counter()
    assert str(inspect.signature(sim)) == "(step: 'TensorType(float32, vector)')"


def test_debugprint_shows_the_graphs_of_the_device():
    f, sim, _ = counter()
    sim.add_method("again", f)
    printed = theano.printing.debugprint(sim, file="str")
    assert printed.count("OpenCLElemwise") >= 2
    assert "step [id" in printed
    file = io.StringIO()
    theano.printing.debugprint([sim, f], file=file)
    assert "OpenCLElemwise" in file.getvalue()
    assert " |Elemwise{Add}" in file.getvalue()


def test_debugprint_is_as_before_for_everything_else():
    x = tt.fvector("x")
    assert theano.printing.debugprint(x + 1, file="str").startswith("Elemwise{add,no_inplace}")
    with pytest.raises(TypeError, match="debugprint cannot print"):
        theano.printing.debugprint(object())


class Steps:
    """A fake call that records how many steps it runs, and a fake clock in which steps take time."""

    def __init__(self, monkeypatch, seconds):
        self.chunks = []
        self.seconds = seconds
        monkeypatch.setattr(progress.time, "perf_counter", lambda: sum(self.chunks) * self.seconds)

    def __call__(self, steps):
        assert steps > 0
        self.chunks.append(steps)
        return len(self.chunks)


@pytest.mark.parametrize("seconds", [0.0, 1e-6, 1e-3, 0.1, 3.0])
@pytest.mark.parametrize("steps", [1, 2, 7, 1000])
def test_chunks_make_all_steps_and_return_the_last(monkeypatch, steps, seconds):
    run = Steps(monkeypatch, seconds)
    assert progress.in_chunks(run, steps) == len(run.chunks)
    assert sum(run.chunks) == steps


def test_a_long_run_moves_the_bar_often(monkeypatch):
    run = Steps(monkeypatch, 1e-3)
    progress.in_chunks(run, 10_000)
    assert max(run.chunks[12:]) * 1e-3 <= 2 * progress.UPDATE_INTERVAL_S
    assert len(run.chunks) < 100


def test_a_short_run_shows_no_bar(monkeypatch):
    monkeypatch.setattr(progress, "started_bar", None)
    progress.in_chunks(Steps(monkeypatch, 1e-4), 1000)


def test_a_run_with_a_bar_computes_the_same(monkeypatch, capsys):
    monkeypatch.setattr(progress, "SHORT_RUN_S", 0.0)
    monkeypatch.setattr(progress, "UPDATE_INTERVAL_S", 0.0)
    _, sim, _ = counter()
    sim.progress_bar = True
    assert sim.call_n_times(100, ONE) == [100]
    assert "100/100" in capsys.readouterr().err
    sim.progress_bar = False
    assert sim.call_n_times(100, ONE) == [200]
    assert capsys.readouterr().err == ""


def test_a_bar_is_for_terminals(monkeypatch):
    for is_terminal in (True, False):
        monkeypatch.setattr(sys.stderr, "isatty", lambda is_terminal=is_terminal: is_terminal, raising=False)
        assert progress.shows_progress(None) is is_terminal
        assert progress.shows_progress(True)
        assert not progress.shows_progress(False)
