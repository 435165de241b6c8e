"""Large arguments are used in place, and large results are computed in the caller's memory, with the same values."""

from __future__ import annotations

import gc
import weakref

import numpy as np
import pytest
import theano
import theano.tensor as tt
from theano.compile.ops import as_op

import optdb
from optdb.opencl import get_context
from optdb.runtime import host_buffers
from optdb.runtime.commands import EnqueueFill
from optdb.runtime.library import cl
from tests.opencl.simulator.lent import N, called, doubled, numbers
from tests.opencl.simulator.made import simulated

pytestmark = pytest.mark.usefixtures("shares_memory", "engine_where_quick")


def test_nothing_is_copied(moved):
    f, sim = doubled()
    x = numbers()
    called(sim, x, times=2)
    moved.take()
    for seed in range(3):
        x = numbers(seed)
        np.testing.assert_array_equal(sim(x), f(x))
        assert moved.take() == (0, 0)


def test_what_is_small_is_copied(moved):
    f, sim = doubled()
    x = numbers(shape=100)
    called(sim, x, times=2)
    moved.take()
    np.testing.assert_array_equal(sim(x), f(x))
    assert moved.take() == (400, 400)


@pytest.mark.usefixtures("alone")
@pytest.mark.slow
def test_arguments_may_be_changed_and_are_not_held():
    class Own(np.ndarray):
        pass

    x, y = tt.fvector("x"), tt.fvector("y")
    _, sim = simulated([x, y], [x + y, (x * y).sum(), x])
    for seed in range(4):
        a, b = numbers(seed).view(Own), numbers(seed + 9)
        gone = weakref.ref(a)
        total, product, same = sim(a, b)
        expected = np.asarray(a + b), np.array(a)
        a[:] = 0
        b[:] = 0
        np.testing.assert_array_equal(total, expected[0])
        np.testing.assert_array_equal(same, expected[1])
        assert not np.may_share_memory(same, a)
        del a
        gc.collect()
        assert gone() is None
    assert np.isfinite(product)


def test_results_are_the_callers():
    f, sim = doubled()
    results = [sim(numbers(seed)) for seed in range(5)]
    for seed, result in enumerate(results):
        assert result.flags.writeable and result.flags.c_contiguous
        np.testing.assert_array_equal(result, f(numbers(seed)))


@pytest.mark.usefixtures("alone")
@pytest.mark.slow
def test_results_are_not_held():
    _, sim = doubled()
    called(sim, numbers())
    gone = weakref.ref(sim(numbers()))
    gc.collect()
    assert gone() is None


def test_results_with_the_same_memory_are_apart():
    x = tt.fmatrix("x")
    y = tt.tanh(x)
    f, sim = simulated([x], [y, y.T, y, y[::-1], y.flatten(), x.T])
    x = numbers(shape=(300, N // 300))
    results = called(sim, x)
    for i, (one, other) in enumerate(zip(results, f(x))):
        np.testing.assert_allclose(one, other, rtol=1e-5)
        assert not any(np.may_share_memory(one, later) for later in [*results[i + 1 :], x])


def test_borrowed_results_are_written_again(moved):
    x = tt.fvector("x")
    f, sim = simulated([x], theano.Out(x * 2 + 1, borrow=True))
    first = called(sim, numbers(1))
    moved.take()
    again = sim(numbers(2))
    assert moved.take() == (0, 0)
    assert np.may_share_memory(first, again)
    np.testing.assert_array_equal(again, f(numbers(2)))
    other = sim(numbers(shape=N + 5))
    assert other.shape == (N + 5,)
    np.testing.assert_array_equal(again, f(numbers(2)))


def test_a_borrowed_result_may_be_the_next_argument():
    x = tt.fvector("x")
    outputs = [theano.Out(x[::-1] * 2, borrow=True), x.reshape((3, -1)).T]
    f, sim = simulated([x], outputs)
    value = expected = numbers()
    for part in [slice(None), slice(None), slice(None), slice(None), slice(0, N // 2)]:
        value, expected = value[part], expected[part]
        turned, other = sim(value)
        expected, wanted = f(expected)
        np.testing.assert_array_equal(turned, expected)
        np.testing.assert_array_equal(other, wanted)
        value = turned


@pytest.mark.parametrize("same", ["x", "x[:]", "x[1:]"])
def test_arguments_that_share_memory(same):
    a, b = tt.fvector("a"), tt.fvector("b")
    f, sim = simulated([a, b], a[: b.shape[0]] * 3 + b)
    for trust in (False, True):
        sim._taker.trust_input = trust
        x = numbers()
        for seed in range(3):
            x[:] = numbers(seed)
            other = eval(same)
            np.testing.assert_allclose(sim(x, other), f(x, other), rtol=1e-5, atol=1e-6)


def test_next_values_are_copies():
    x = tt.fvector("x")
    w, v = theano.shared(numbers(), name="w"), theano.shared(numbers(), name="v")
    _, sim = simulated([x], [w + x, w], updates=[(w, x), (v, x[::-1])])
    before = numbers()
    for seed in range(1, 5):
        value = numbers(seed)
        total, present = sim(value)
        np.testing.assert_array_equal(total, before + value)
        np.testing.assert_array_equal(present, before)
        before = value.copy()
        value[:] = 0
        np.testing.assert_array_equal(sim.get("w"), before)
        np.testing.assert_array_equal(sim.get("v"), before[::-1])


def test_a_result_that_is_a_next_value_is_the_callers():
    x = tt.fvector("x")
    w, v = (theano.shared(np.zeros(N, "float32"), name=name) for name in "wv")
    sums, following = w + x, tt.tanh(x)
    _, sim = simulated([x], [sums, sums * 2, following], updates=[(w, sums), (v, following)])
    wanted = np.zeros(N, "float32")
    for seed in range(6):
        wanted = wanted + numbers(seed)
        one, two, three = sim(numbers(seed))
        np.testing.assert_array_equal(one, wanted)
        np.testing.assert_array_equal(two, wanted * 2)
        np.testing.assert_allclose(three, np.tanh(numbers(seed)), rtol=1e-5)
        four = three.copy()
        one[:] = two[:] = three[:] = 7
        np.testing.assert_array_equal(sim.get(w), wanted)
        np.testing.assert_array_equal(sim.get(v), four)


def test_calls_that_are_begun_copy():
    f, sim = doubled()
    x = numbers()
    called(sim, x)
    pending, wanted = [], []
    for seed in range(4):
        x[:] = numbers(seed)
        wanted.append(f(x))
        pending.append(sim.run_async(x))
        x[:] = numbers(seed + 10)
        np.testing.assert_array_equal(sim(x), f(x))
    x[:] = 0
    for one, other in zip(pending, wanted):
        np.testing.assert_array_equal(one.wait(), other)


def test_calls_without_results_do_not_wait_for_arguments(moved):
    x = tt.fvector("x")
    w = theano.shared(np.zeros(N, "float32"), name="w")
    _, sim = simulated([x], [], updates=[(w, w + x)])
    value = numbers()
    for _ in range(4):
        sim(value)
    moved.take()
    sim(value)
    assert moved.take() == (value.nbytes, 0)
    value[:] = 0
    np.testing.assert_allclose(sim.get(w), 5 * numbers(), rtol=1e-5)


@pytest.mark.parametrize("times", [1, 3, 20])
def test_many_steps(times, moved):
    x = tt.fvector("x")
    w = theano.shared(np.zeros(N, "float32"), name="w")
    _, sim = simulated([x], w * 2, updates=[(w, w + x)])
    wanted = np.zeros(N, "float32")
    for seed in range(4):
        x = numbers(seed)
        moved.take()
        result = sim.call_n_times(times, x)
        for _ in range(times):
            before, wanted = wanted, wanted + x
        np.testing.assert_array_equal(result, before * 2)
        assert moved.take()[0] == 0
        before, wanted = wanted, wanted - x
        np.testing.assert_array_equal(sim(-x), before * 2)


def test_inputs_that_change():
    x, y = tt.fvector("x"), tt.fvector("y")
    inputs = [theano.In(x, mutable=True, borrow=True), theano.In(y, value=numbers(5), update=y + x, name="y")]
    _, sim = simulated(inputs, [tt.tanh(x), y * 2])
    _, over = simulated(inputs[:1], tt.tanh(x))
    wanted = numbers(5)
    for seed in range(4):
        value = numbers(seed)
        one, two = sim(value)
        np.testing.assert_array_equal(over(value), one)
        np.testing.assert_array_equal(value, numbers(seed))
        np.testing.assert_allclose(one, np.tanh(numbers(seed)), rtol=1e-5)
        np.testing.assert_array_equal(two, wanted * 2)
        wanted = wanted + numbers(seed)


def test_defaults_stay():
    x, y = tt.fvector("x"), tt.fvector("y")
    _, sim = simulated([x, theano.In(y, value=numbers(5))], x + y)
    for seed in range(4):
        np.testing.assert_array_equal(sim(numbers(seed)), numbers(seed) + numbers(5))
        np.testing.assert_array_equal(sim(numbers(seed), numbers(7)), numbers(seed) + numbers(7))


def test_nodes_that_compute_on_the_host(moved):
    @as_op(itypes=[tt.fvector], otypes=[tt.fvector])
    def turned(x):
        return x[::-1].copy()

    x, i = tt.fvector("x"), tt.iscalar("i")
    f, sim = simulated([x, i], [turned(x * 2) + x, x[i:] * 3, x[:i].sum()])
    for seed, index in enumerate([3, 3, 3, 5, 5, 3, N, 0, 2]):
        value = numbers(seed)
        for one, other in zip(sim(value, index), f(value, index), strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-3, atol=1e-3)


@pytest.mark.slow
def test_an_index_may_be_a_borrowed_result():
    @as_op(itypes=[tt.fscalar, tt.ivector], otypes=[tt.ivector])
    def later(total, i):
        return i if total else i * 2

    i = tt.ivector("i")
    turned = i[::-1] + 1
    total = tt.exp(-turned.astype("float32") / np.float32(N)).sum()  # `turned` may be computed in i's memory
    f, sim = simulated([i], [theano.Out(turned, borrow=True), later(total, i)])
    value = expected = np.arange(N, dtype="int32")
    for _ in range(5):
        value, other = sim(value)
        expected, wanted = f(expected)
        np.testing.assert_array_equal(value, expected)
        np.testing.assert_array_equal(other, wanted)


@pytest.mark.slow
def test_loops(moved):
    x = tt.fmatrix("x")
    ys, _ = theano.scan(lambda row, before: tt.tanh(before + row), sequences=x, outputs_info=tt.zeros_like(x[0]))
    f, sim = simulated([x], ys)
    shape = (6, 4 * N)
    called(sim, numbers(shape=shape))
    moved.take()
    for seed in range(3):
        np.testing.assert_allclose(sim(numbers(seed, shape)), f(numbers(seed, shape)), rtol=1e-4, atol=1e-5)
        assert moved.take()[0] == 0


def test_shapes_in_turn(moved):
    f, sim = doubled()
    for _ in range(3):
        for n in (N, N + 1, 10, N + 2):
            np.testing.assert_array_equal(sim(numbers(shape=n)), f(numbers(shape=n)))
    moved.take()
    sim(numbers())
    assert moved.take() == (0, 0)
    assert len(sim._executable.run.plans) == 4


def test_the_device_is_waited_for_before_memory_is_let_go(monkeypatch):
    _, sim = doubled()
    called(sim, numbers())
    run, order = sim._executable.run, []
    finish, let_go = cl.CommandQueue.finish, run.drop_external
    monkeypatch.setattr(run, "drop_external", lambda: (order.append("let go"), let_go()))
    monkeypatch.setattr(cl.CommandQueue, "finish", lambda queue: (order.append("wait"), finish(queue)))
    monkeypatch.setattr(run, "_load", lambda *known: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        sim(numbers())
    assert order == ["wait", "let go"]


@pytest.mark.usefixtures("alone")
@pytest.mark.slow
@pytest.mark.parametrize("kind", [ValueError, KeyboardInterrupt])
def test_a_call_that_is_stopped_lets_go(kind):
    @as_op(itypes=[tt.fvector], otypes=[tt.fvector])
    def picky(x):
        if x[0] > 0:
            raise kind("not that")
        return x

    x = tt.fvector("x")
    w = theano.shared(np.zeros(N, "float32"), name="w")
    _, sim = simulated([x], picky(tt.tanh(x)) * 2, updates=[(w, w + x)])
    good = -np.abs(numbers()) - 1
    called(sim, good)
    before = sim.get(w)
    for _ in range(3):
        bad = np.abs(numbers()) + 1
        gone = weakref.ref(bad)
        with pytest.raises(kind, match="not that"):
            sim(bad)
        np.testing.assert_array_equal(sim.get(w), before)
        sim._taker.input_storage[0].storage[0] = None  # Theano does this after an error
        del bad
        gc.collect()
        assert gone() is None
    np.testing.assert_allclose(sim(good), np.tanh(good) * 2, rtol=1e-5)


@pytest.mark.slow
def test_a_part_of_a_device():
    x = tt.fvector("x")
    f = theano.function([x], x * 2 + 1, mode=theano.Mode(linker="py"))
    sim = optdb.SimulatorOCL(f, device="dev1")
    for seed in range(4):
        np.testing.assert_array_equal(sim(numbers(seed)), f(numbers(seed)))


def test_mode_opencl_lends_as_well(moved):
    x = tt.fvector("x")
    w = theano.shared(numbers(9), name="w")
    f = theano.function([x], x * w, updates=[(w, w + 1)], mode=optdb.mode(device="dev0"))
    wanted = numbers(9)
    results = []
    for seed in range(4):
        moved.take()
        value = numbers(seed)
        results.append((f(value), numbers(seed) * wanted))
        value[:] = 0
        wanted = wanted + np.float32(1)
        assert moved.up == 0 or seed == 0
    for got, expected in results:
        np.testing.assert_array_equal(got, expected)
    np.testing.assert_array_equal(w.get_value(), wanted)


def test_without_plans_and_looking_inside():
    f, sim = doubled()
    called(sim, numbers())
    assert sim.check(numbers()).ok
    sim.profile(numbers(), n=1)
    sim.memory(numbers())
    np.testing.assert_array_equal(sim(numbers(2)), f(numbers(2)))
    for seed in range(20):  # each shape occurs only once, so plans are given up
        np.testing.assert_array_equal(sim(numbers(shape=N + seed)), f(numbers(shape=N + seed)))


def test_what_a_call_takes_is_known():
    x = tt.fmatrix("x")
    _, sim = simulated([x], tt.tanh(x.dot(x)).dot(x) + 1)
    value = numbers(shape=(300, 300))
    foreseen = sim.memory(value)
    called(sim, value)
    (plan,) = sim._executable.run.plans
    assert foreseen.values == sim.memory(value).values == plan.buffers.nbytes


def test_a_device_that_has_to_be_asked_for_what_it_wrote(each_device_kind):
    context = get_context("dev0")
    home = np.empty(N + 1024, "float32")
    home = home[(-home.ctypes.data % 4096) // 4 :][:N]
    buffer = host_buffers.wrap_host_array(context, home, writes=True)
    EnqueueFill(context.queue, buffer, 0, home.nbytes, np.float32(3)).enqueue()
    host_buffers.sync_to_host(context, buffer)
    np.testing.assert_array_equal(home, np.full(N, 3, "float32"))
    assert (host_buffers.wrap_host_array(context, np.empty(N + 1, "float32")[1:]) is None) == (
        each_device_kind == "gpu"
    )
    assert host_buffers.wrap_host_array(context, np.empty(10, "float32")) is None
    assert host_buffers.wrap_host_array(context, np.empty(4 * N + 1, "uint8")[1:].view("float32")) is None
    assert host_buffers.wrap_host_array(context, np.empty((N, 2), "float32")[:, 0]) is None


def test_only_what_uses_it_is_rebound():
    from optdb.runtime.buffer_assignment import BufferAssignment, IOBinding, Liveness
    from optdb.runtime.commands import Memory

    context = get_context("dev0")
    memory, other = (Memory(N, context.cl_context) for _ in range(2))
    buffers, rebound = BufferAssignment(Liveness({}), io=IOBinding({"x": memory}, {"y": other})), []
    buffers.when_rebound(memory, rebound.append)
    first, second = (cl.Buffer(context.cl_context, cl.mem_flags.READ_WRITE, N) for _ in range(2))
    buffers.rebind(memory, first)
    buffers.rebind(memory, first)
    buffers.rebind(other, second)
    assert rebound == [first]
    buffers.rebind(memory, second)
    buffers.rebind(memory, None)
    assert rebound[:2] == [first, second] and len(rebound) == 3
    assert buffers.locate(memory) == (rebound[2], 0)
    assert buffers.fallback(other) is buffers.fallback(other)


@pytest.mark.slow_cases("40-True")
@pytest.mark.parametrize("steps, copied", [(2, False), (40, True)])
def test_what_many_small_launches_use_is_copied_so_that_they_are_merged(steps, copied, moved):
    x = tt.fvector("x")
    y = x[:100]
    for i in range(steps):
        y = tt.exp(-y).sum(keepdims=True) * x[i : 100 + i]
    f, sim = simulated([x], y)
    called(sim, numbers(), times=4)
    moved.take()
    for seed in range(3):
        np.testing.assert_allclose(sim(numbers(seed)), f(numbers(seed)), rtol=1e-4)
        assert (moved.take()[0] > 0) == copied
    assert len(sim._executable.run.plans) == 1
