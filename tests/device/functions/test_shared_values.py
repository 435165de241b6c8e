"""Device functions update all of their shared values or none, wherever these are and however they are read."""

from __future__ import annotations

import copy
import pickle
import signal
from dataclasses import replace

import numpy as np
import pytest

from optdb.device.expressions import applied, folded, joined, strided
from optdb.device.functions.function import TracedFunction
from optdb.device.functions.shared_values import PairedBuffer, PlacedValue, ValueOnDevice, fetched
from optdb.device.tensors import Constant, Stripe
from optdb.runtime import pinned_memory
from optdb.runtime.context_options import TransferSizes
from optdb.runtime.pinned_memory import PinnedMemory
from tests.interrupts import ctrl_c_interrupts  # noqa: F401 (a fixture)
from tests.opencl_device import context_with_memory, new_context

pytestmark = pytest.mark.usefixtures("ctrl_c_interrupts")

F = "float64"


@pytest.fixture(scope="module", params=["host's memory", "own memory"])
def context(request):
    return context_with_memory(shares_hosts=request.param == "host's memory")


def function_of(context, describe, count=1, updates=None):
    """Return a function whose first `count` outputs are the next values of its first inputs."""
    resident = [True] * 4
    updates = {number: number for number in range(count)} if updates is None else updates
    return TracedFunction(context, lambda tracer: describe(*tracer.arguments), resident, updates=updates)


def added(context):
    """Return a function that adds its second argument to the first one."""
    return function_of(context, lambda w, x: [applied("Add", F, w, x), applied("Mul", F, w, x)])


def new_cell(length=5):
    return [np.arange(float(length))]


def commands_of(function):
    """Return the commands that are enqueued if the last call is repeated."""
    ((_, call),) = function.traced_calls
    return call.machine.repeated_commands()


def test_values_stay_on_the_device(context):
    add, w, x = added(context), new_cell(), np.ones(5)
    standing = []
    for number in range(6):
        _, product = add.run([w, [x]])
        np.testing.assert_array_equal(product, np.arange(5.0) + number)
        standing.append(w[0])
    is_shared = context.profile.shares_host_memory
    assert all(value is standing[0] for value in standing)
    assert isinstance(standing[0], np.ndarray if is_shared else ValueOnDevice)
    np.testing.assert_array_equal(fetched(w), np.arange(5.0) + 6)
    assert isinstance(w[0], np.ndarray)


def test_an_elementwise_update_overwrites_the_old_value(context):
    add, w, x = added(context), new_cell(9000), [np.ones(9000)]
    for _ in range(5):
        add.run([w, x])
    ((_, call),) = add.traced_calls
    (plan,) = call.plans
    assert len(commands_of(add)) == plan.commands == 2 and plan.buffers.nbytes == 0


@pytest.mark.parametrize(
    "describe",
    [
        lambda w, x: applied("Add", F, _reversed(w), x),
        lambda w, x: applied("Add", F, joined([_part(w, 1, 8999), _part(w, 0, 1)], 0), x),
        lambda w, x: applied("Mul", F, w, applied("Add", F, x, _first(w))),
    ],
    ids=["reversed", "rolled", "by its first element"],
)
def test_other_updates_are_copied_at_the_end(describe, context):
    function, w = function_of(context, lambda w, x: [describe(w, x)]), [np.arange(9000.0) % 7 + 1]
    expected, x = w[0].copy(), [np.full(9000, 0.5)]
    reference = function_of(context, lambda w, x: [describe(w, x)], updates={})
    for _ in range(5):
        (expected,) = reference([expected, x[0]])
        function.run([w, x])
        np.testing.assert_array_equal(np.asarray(w[0]), expected)
    assert len(commands_of(function)) > 1


def _part(w, start, length):
    return strided(w, [Stripe(start, 1, length)])


def _reversed(w):
    return strided(w, [Stripe(w.size - 1, -1, w.size)])


def _first(w):
    return _part(w, 0, 1)


def test_updates_read_each_other(context):
    function = function_of(context, lambda a, b: [b, applied("Add", F, a, b)], 2)
    a, b = [np.ones(3)], [np.full(3, 2.0)]
    expected = 1.0, 2.0
    for _ in range(6):
        function.run([a, b])
        expected = expected[1], sum(expected)
        assert (np.asarray(a[0])[0], np.asarray(b[0])[0]) == expected


@pytest.mark.parametrize("reason", ["host", "condition", "interrupt"])
def test_a_call_that_raises_changes_no_value(reason, context):
    fails = []

    class Work:
        def __call__(self, values):
            if fails and reason == "host":
                raise RuntimeError("no")
            if fails and reason == "interrupt":
                signal.raise_signal(signal.SIGINT)
            return [values[0] + 1]

    def describe(tracer):
        a, b, x = tracer.arguments
        following = applied("Add", F, a, x)
        if reason == "condition":
            small = applied("LT", "bool", folded("Add", x, [0], F), Constant(np.array(10.0)))
            tracer.check(small, lambda: RuntimeError("no"))
            return [following, applied("Mul", F, b, x)]
        (more,) = tracer.on_host(Work(), [following])
        return [following, applied("Mul", F, b, more)]

    function = TracedFunction(context, describe, [True, True, False], updates={0: 0, 1: 1})
    a, b, count = [np.ones(3)], [np.ones(3)], 0
    for number in range(9):
        before = [np.asarray(cell[0]).copy() for cell in (a, b)]
        fails[:] = [True] if number in (0, 1, 4, 6) else []
        x = np.full(3, 100.0 if fails and reason == "condition" else 1.0)
        if fails:
            with pytest.raises(KeyboardInterrupt if reason == "interrupt" else RuntimeError):
                function.run([a, b, [x]])
            np.testing.assert_array_equal([np.asarray(cell[0]) for cell in (a, b)], before)
            continue
        function.run([a, b, [x]])
        count += 1
        np.testing.assert_array_equal(np.asarray(a[0]), np.ones(3) + count)


def test_an_interrupt_at_the_end_waits_for_all_values(context, monkeypatch):
    function = function_of(context, lambda a, b: [applied("Add", F, a, b), applied("Mul", F, a, b)], 2)
    a, b, usual = [np.full(3, 2.0)], [np.full(3, 3.0)], PlacedValue.updated
    function.run([a, b])

    def updated(self, is_done):
        signal.raise_signal(signal.SIGINT)
        return usual(self, is_done)

    for number in range(4):
        before = [np.full(3, 2.0), np.full(3, 3.0)] if number % 2 else [np.array(cell[0]) for cell in (a, b)]
        if number % 2:
            a[0], b[0] = [value.copy() for value in before]
        with monkeypatch.context() as patched:
            patched.setattr(PlacedValue, "updated", updated)
            with pytest.raises(KeyboardInterrupt):
                function.run([a, b])
        np.testing.assert_array_equal(np.array(a[0]), before[0] + before[1])
        np.testing.assert_array_equal(np.array(b[0]), before[0] * before[1])


def test_a_value_that_is_set_takes_the_place_of_the_old_one(context):
    add, w = added(context), new_cell()
    for number in range(8):
        w[0] = np.full(5, float(number))
        add.run([w, [np.ones(5)]])
        np.testing.assert_array_equal(np.asarray(w[0]), np.full(5, number + 1.0))
    ((_, call),) = add.traced_calls
    assert len(call.machine.seen()) == 1  # the value's address is always the same, so there is one plan


def test_an_array_that_someone_has_is_left_alone(context):
    add, w = added(context), new_cell()
    add.run([w, [np.ones(5)]])
    kept = fetched(w)
    view, expected = kept[1:], kept.copy()
    del kept
    w[0] = np.zeros(5)
    add.run([w, [np.ones(5)]])
    np.testing.assert_array_equal(view, expected[1:])
    np.testing.assert_array_equal(np.asarray(w[0]), np.ones(5))


def test_functions_share_a_value(context):
    add, double, w = added(context), function_of(context, lambda w: [applied("Add", F, w, w)]), new_cell()
    read = function_of(context, lambda w: [applied("Neg", F, w)], updates={})
    other = new_context()
    elsewhere = function_of(other, lambda w: [applied("Add", F, w, Constant(np.ones(5)))])
    expected = np.arange(5.0)
    for number in range(12):
        add.run([w, [np.ones(5)]])
        double.run([w])
        expected = (expected + 1) * 2
        if number % 5 == 3:
            elsewhere.run([w])
            expected += 1
        (negative,) = read.run([w])
        np.testing.assert_array_equal(negative, -expected)
    np.testing.assert_array_equal(fetched(w), expected)


def test_two_cells_with_one_array_are_two_values(context):
    add, w, v = added(context), new_cell(), new_cell()
    add.run([w, [np.ones(5)]])
    v[0] = fetched(w)
    w[0] = v[0]
    for _ in range(3):
        add.run([v, [np.ones(5)]])
    np.testing.assert_array_equal(fetched(w), np.arange(5.0) + 1)
    np.testing.assert_array_equal(fetched(v), np.arange(5.0) + 4)


def test_a_value_on_a_device_copies_and_pickles_as_an_array():
    context = new_context()
    context.profile = replace(context.profile, shares_host_memory=False)
    add, w = added(context), new_cell()
    add.run([w, [np.ones(5)]])
    assert isinstance(w[0], ValueOnDevice) and "float64 (5,)" in repr(w[0])
    for value in (copy.deepcopy(w)[0], pickle.loads(pickle.dumps(w))[0], np.asarray(w[0])):
        assert type(value) is np.ndarray
        np.testing.assert_array_equal(value, np.arange(5.0) + 1)
    assert isinstance(w[0], ValueOnDevice)


def test_a_next_value_may_have_another_length(context):
    grow, w = function_of(context, lambda w: [joined([w, w], 0)]), [np.arange(2.0)]
    for length in (4, 8, 16):
        grow.run([w])
        assert w[0].shape == (length,)
    w[0] = np.arange(2.0)
    for _ in range(2):
        grow.run([w])
    np.testing.assert_array_equal(fetched(w), [0, 1] * 4)


def test_empty_values_are_updated(context):
    add, w = added(context), [np.zeros((0,))]
    for _ in range(4):
        add.run([w, [np.zeros((0,))]])
        assert w[0].shape == (0,)


@pytest.mark.parametrize("times", [1, 2, 7])
def test_many_calls_give_what_single_ones_give(times, context):
    add, w = added(context), new_cell()
    for count in range(1, 4):
        _, product = add.call_n_times([w, [np.ones(5)]], times)
        np.testing.assert_array_equal(product, np.arange(5.0) + count * times - 1)
        np.testing.assert_array_equal(np.asarray(w[0]), np.arange(5.0) + count * times)


def test_a_call_need_not_be_waited_for(context):
    add, w, begun = added(context), new_cell(), []
    for number in range(6):
        x = np.full(5, float(number))
        begun.append(add.begin([w, [x]]))
        x[:] = np.nan
    assert isinstance(w[0], ValueOnDevice)
    add.run([w, [np.zeros(5)]])
    expected = np.arange(5.0)
    for number, ((_, product), events) in enumerate(begun):
        for event in events:
            event.wait()
        np.testing.assert_array_equal(product, expected * number)
        expected += number
    np.testing.assert_array_equal(fetched(w), expected)


def test_zeros_are_told_apart_by_their_signs(context):
    """A value is not sent again to a buffer that holds it; 0.0 and -0.0 are different values."""
    buffer = PairedBuffer(context, (2,), F)
    for value in (np.array([0.0, np.nan]), np.array([-0.0, np.nan]), np.array([-0.0, 1.0])):
        assert not buffer.holds(value)
        buffer.send(value)
        assert buffer.holds(value)


@pytest.fixture
def pinning():
    """Return a context of a device with its own memory, which gets arrays of all sizes through pinned memory."""
    context = context_with_memory(shares_hosts=False)
    context.options = replace(context.options, transfer_sizes=TransferSizes(least=1, piece=1 << 12))
    context.kept[pinned_memory.__name__] = PinnedMemory(context.queue, 1 << 12)
    return context


@pytest.mark.parametrize("dtype", ["bool", "int8", "float32", "complex128"])
@pytest.mark.parametrize("shape", [(), (0, 3), (7,), (30, 50), (3, 40, 50)])
def test_pinned_buffers_send_and_return_values(pinning, monkeypatch, shape, dtype):
    monkeypatch.setattr(pinned_memory, "_NBYTES_PER_THREAD", 1 << 10)
    monkeypatch.setattr(pinning.kept[pinned_memory.__name__], "_copiers", pinned_memory._Copiers(3))
    buffer = PairedBuffer(pinning, shape, dtype)
    for number in range(4):
        values = np.asarray(np.random.RandomState(number).rand(*shape) * 9).astype(dtype)
        # Arguments of other dtypes and layouts are converted.
        given = values.astype("float64").T.copy().T if dtype == "float32" else values
        buffer.send(given)
        assert buffer.holds(values)
        buffer.request()
        pinning.queue.finish()
        taken = buffer.take()
        np.testing.assert_array_equal(taken, values)
        assert taken.shape == shape and taken.dtype == dtype and not np.shares_memory(taken, buffer.values)


def test_functions_with_pinned_buffers_update_as_others_do(pinning):
    add, w = added(pinning), new_cell(2000)
    for number in range(5):
        x = np.full(2000, float(number))
        _, product = add.run([w, [x]])
        x[:] = np.nan
        before = np.arange(2000.0) + sum(range(number))
        np.testing.assert_array_equal(product, before * number)
    np.testing.assert_array_equal(fetched(w), np.arange(2000.0) + 10)
