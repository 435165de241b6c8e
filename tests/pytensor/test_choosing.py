"""Mode OPENCL_AUTO chooses the host or the device for each call, and computes each call only once."""

from __future__ import annotations

import pickle
import warnings

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest

import optdb.pytensor
from optdb.pytensor import choosing
from optdb.pytensor.choosing import DEFAULT, DEVICE, SideChoice, Trial, agree, graph_digest
from optdb.runtime import binaries
from tests.pytensor.comparing import sort_on_host

v = pt.vector("v")
#: This number of calls is larger than the number of calls in a trial.
MANY = 2 * choosing._TIMED_CALLS + 2 * choosing._WARMUP_CALLS + 5


@pytest.fixture(autouse=True)
def apart(monkeypatch, tmp_path):
    """Make the Python linker, which compiles nothing, PyTensor's default; store choices in a test folder."""
    monkeypatch.setattr(binaries, "_current", binaries.Binaries(tmp_path))
    with pytensor.config.change_flags(linker="py"):
        yield


class Sides:
    """Fake functions of the host and the device, which record calls, advance a fake clock, and fail if requested."""

    def __init__(self, monkeypatch, **seconds):
        self.now, self.seconds, self.calls, self.failing = 0.0, seconds, [], {}
        monkeypatch.setattr(choosing.time, "perf_counter", lambda: self.now)

    def __call__(self, side):
        def compute(cells):
            ((x,),) = cells
            self.calls.append(side)
            if side in self.failing:
                raise self.failing[side]
            self.now += self.seconds[side]
            return [np.asarray(x + 1.0)]

        return compute

    def trial(self, calls=MANY):
        trial = Trial(self, [], {})
        for number in range(calls):
            if trial.choice is not None:
                break
            assert trial.call([[float(number)]]) == [number + 1.0]
        return trial


@pytest.mark.parametrize(
    ("seconds", "side", "calls"),
    [
        ({DEFAULT: 1.0, DEVICE: 1.2}, DEFAULT, 36),
        ({DEFAULT: 1.0, DEVICE: 0.97}, DEFAULT, 36),
        ({DEFAULT: 1.0, DEVICE: 0.8}, DEVICE, 36),
        ({DEFAULT: 1.0, DEVICE: 9.0}, DEFAULT, 14),
        ({DEFAULT: 1.0, DEVICE: 0.1}, DEVICE, 36),
    ],
)
def test_the_faster_side_is_chosen_and_only_one_call_is_computed_twice(seconds, side, calls, monkeypatch):
    sides = Sides(monkeypatch, **seconds)
    choice = sides.trial().choice
    assert (choice.side, choice.default_s, choice.device_s) == (side, 1.0, pytest.approx(seconds[DEVICE]))
    assert len(sides.calls) == calls + 1


def test_a_device_that_fails_alone_is_left_out(monkeypatch):
    sides = Sides(monkeypatch, **{DEFAULT: 1.0, DEVICE: 1.0})
    sides.failing[DEVICE] = ValueError("broken\nmore")
    assert sides.trial().choice == SideChoice(DEFAULT, "the device failed: ValueError: broken")


def test_a_default_that_cannot_be_compiled_is_left_out(monkeypatch):
    sides = Sides(monkeypatch, **{DEFAULT: 1.0, DEVICE: 1.0})
    sides.failing[DEFAULT] = NotImplementedError("no code")
    reason = "the default linker failed to compile it: NotImplementedError: no code"
    assert sides.trial().choice == SideChoice(DEVICE, reason)

    def run(side):
        if side == DEFAULT:
            raise TypeError("no code")
        return lambda cells: [np.asarray(cells[0][0])]

    trial = Trial(run, [], {})
    assert trial.call([[1.0]]) == [1.0]
    assert trial.choice == SideChoice(DEVICE, "the default linker failed to compile it: TypeError: no code")


def test_an_error_of_the_default_is_raised_and_decides_nothing(monkeypatch):
    for calls in (0, 1, 4, 5):
        sides = Sides(monkeypatch, **{DEFAULT: 1.0, DEVICE: 9.0})
        trial = sides.trial(calls=calls)
        sides.failing = {DEFAULT: IndexError("out of bounds"), DEVICE: ValueError("other words")}
        for _ in range(2):
            with pytest.raises(IndexError):
                trial.call([[1.0]])
        sides.failing = {}
        assert trial.choice is None and trial.call([[1.0]]) == [2.0]


def test_other_values_are_told_and_left_to_the_default():
    def run(side):
        return lambda cells: [np.asarray(cells[0][0] * (1 if side == DEFAULT else 1.001))]

    trial = Trial(run, [], {})
    trial.call([[2.0]])
    with pytest.warns(optdb.pytensor.DifferingValuesWarning, match="different values"):
        assert trial.call([[2.0]]) == [2.0]
    assert trial.choice == SideChoice(DEFAULT, "the device computes different values")


@pytest.mark.parametrize(
    ("expected", "computed", "same"),
    [
        ([1.0, 2.0], [1.0, 2.0 + 1e-8], True),
        ([1.0, 2.0], [1.0, 2.0 + 1e-4], False),
        ([np.nan, np.inf, 1.0], [np.nan, np.inf, 1.0], True),
        ([np.nan, 1.0], [2.0, 1.0], False),
        ([1.0], [1.0, 1.0], False),
        ([], [], True),
    ],
)
def test_values_agree_within_rounding(expected, computed, same):
    assert agree([np.asarray(expected)], [np.asarray(computed)]) == same
    assert agree([np.asarray([1.0], "float32"), 3], [np.asarray([1.0001], "float32"), 4])
    assert not agree([np.arange(3)], [np.arange(1, 4)])


def test_updates_and_random_numbers_advance_once_in_each_call():
    count, rng = pytensor.shared(np.zeros(3)), pytensor.shared(np.random.default_rng(3))
    following, draws = pt.random.normal(size=(4,), rng=rng, return_next_rng=True)
    f = pytensor.function([v], [count + v, draws], updates={count: count + 1, rng: following}, mode="OPENCL_AUTO")
    expected = np.random.default_rng(3)
    for number in range(MANY):
        total, drawn = f(np.ones(3))
        np.testing.assert_array_equal(total, np.full(3, number + 1.0))
        np.testing.assert_array_equal(drawn, expected.normal(size=4))
        np.testing.assert_array_equal(count.get_value(), np.full(3, number + 1.0))
    assert optdb.pytensor.explain(f).startswith("shapes (3,), (3,): ")


def test_results_are_the_values_before_an_update():
    first, second = pytensor.shared(np.arange(3.0)), pytensor.shared(np.ones(3))
    a, b = first.get_value(), second.get_value()
    updates = [(first, second * 2), (second, first + 1)]
    f = pytensor.function([], [first, first.sum()], updates=updates, mode="OPENCL_AUTO")
    for _ in range(MANY):
        before, total = f()
        np.testing.assert_array_equal(before, a)
        assert total == a.sum()
        a, b = b * 2, a + 1
        np.testing.assert_array_equal(first.get_value(), a)
        np.testing.assert_array_equal(second.get_value(), b)


def test_arguments_stay_as_they_are_and_may_have_other_shapes(monkeypatch):
    monkeypatch.setattr(choosing, "_MOST_CHOICES", 2)
    f = pytensor.function([v], [pt.exp(v).sum(), v * 2], mode="OPENCL_AUTO")
    for n in (3, 5, 3, 8):
        given = np.arange(float(n))
        for _ in range(MANY):
            total, doubled = f(given)
            assert total == pytest.approx(np.exp(given).sum())
            np.testing.assert_array_equal(doubled, 2 * given)
        np.testing.assert_array_equal(given, np.arange(float(n)))
    assert list(f.vm.jit_fn.choices) == [((3,),), ((5,),)]


def test_a_choice_is_kept_for_the_next_process():
    def choice():
        f = pytensor.function([v], pt.tanh(v).sum(), mode="OPENCL_AUTO")
        assert optdb.pytensor.explain(f) == "not called yet"
        calls = 0
        while not f.vm.jit_fn.choices:
            f(np.ones(7))
            calls += 1
        return calls, *f.vm.jit_fn.choices.values()

    calls, first = choice()
    again, second = choice()
    assert calls > 1 == again
    assert second == SideChoice(first.side, "measured earlier", first.default_s, first.device_s)


def test_a_damaged_choice_is_measured_again(tmp_path):
    for _ in range(2):
        f = pytensor.function([v], pt.tanh(v).sum(), mode="OPENCL_AUTO")
        for _ in range(MANY):
            f(np.ones(7))
        (file,) = tmp_path.glob("tuning-*.json")
        (choice,) = f.vm.jit_fn.choices.values()
        assert "measured in" in choice.reason
        file.write_text(file.read_text().replace('"side": "', '"side": "no '))


def test_without_a_device_the_default_computes(monkeypatch):
    mode = optdb.pytensor.opencl_mode("no such device", auto=True)
    f = pytensor.function([v], v.sum(), mode=mode)
    assert f(np.ones(4)) == 4.0
    (choice,) = f.vm.jit_fn.choices.values()
    assert choice.side == DEFAULT and "no device is available" in choice.reason


def test_neither_size_nor_host_nodes_are_warned_of(monkeypatch):
    monkeypatch.setattr(choosing, "_WORTHWHILE", 1e9)
    f = pytensor.function([v], sort_on_host(v)[::2], mode="OPENCL_AUTO")
    with warnings.catch_warnings():
        warnings.simplefilter("error", optdb.pytensor.HostNodesWarning)
        warnings.simplefilter("error", optdb.pytensor.TooSmallWarning)
        for _ in range(560):
            f(np.ones(3))
    assert f.vm.jit_fn.device is not None and "by the linker" in optdb.pytensor.explain(f)


def test_functions_are_pickled_and_not_exported(tmp_path):
    f = pytensor.function([v], pt.exp(v).sum(), mode="OPENCL_AUTO")
    assert pickle.loads(pickle.dumps(f))(np.zeros(4)) == 4.0
    with pytest.raises(TypeError, match="is not of mode OPENCL: compile it"):
        optdb.pytensor.export(f, tmp_path / "f.optdb", np.zeros(4))


def test_digests_tell_graphs_apart():
    def digest(make):
        x = pt.vector()
        inner = pytensor.compile.builders.OpFromGraph([x], [pt.exp(x) * 3])
        return graph_digest(pytensor.graph.fg.FunctionGraph([x], [make(x, inner)], clone=False))

    graphs = [
        lambda x, inner: x + 1.0,
        lambda x, inner: x + 2.0,
        lambda x, inner: inner(x),
        lambda x, inner: x + np.arange(5000.0),
    ]
    digests = [digest(make) for make in graphs]
    assert len(set(digests)) == len(graphs)
    assert digests == [digest(make) for make in graphs]
