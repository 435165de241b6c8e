"""Functions on a device repeat recorded commands, unless these no longer fit a call."""

from __future__ import annotations

import numpy as np
import pytest
import theano
import theano.tensor as tt

import optdb
from optdb.device.plans.machine import MAX_UNUSED_RECORDINGS, PLAN_CACHE_SIZE
from optdb.device.plans.steps import CommandSegment
from optdb.opencl import as_opencl_variable
from optdb.opencl.kernel_ops import OpenCLKernelBase
from optdb.opencl.linking.nodes import is_small
from optdb.opencl.linking.planned_vm import PlannedVM
from optdb.runtime.arrays import DeviceArray
from optdb.runtime.commands import EnqueueKernel
from optdb.runtime.dispatch import enqueue
from optdb.runtime.library import cl
from tests.processes import run_code

pytestmark = pytest.mark.usefixtures("default")

MODE = theano.compile.get_default_mode().including("opencl")


def on_device(inputs, outputs, **kwargs):
    """Compile for the device; a single result stays there, so that lifting is worthwhile."""
    if isinstance(outputs, theano.Variable):
        outputs = as_opencl_variable(outputs, "dev0")
    function = theano.function(inputs, outputs, mode=MODE, **kwargs)
    assert isinstance(function.fn, PlannedVM)
    return function


def floats(*shape, seed=0):
    return np.random.RandomState(seed).standard_normal(shape).astype("float32")


def test_values_are_those_of_the_inputs_at_each_call():
    x, y = tt.fmatrix(), tt.fmatrix()
    f = on_device([x, y], [tt.tanh(x.dot(y)).sum(axis=0), x * 2])
    for seed in range(5):
        a, b = floats(3, 4, seed=seed), floats(4, 2, seed=seed + 10)
        sums, doubled = f(a, b)
        np.testing.assert_allclose(sums, np.tanh(a.dot(b)).sum(axis=0), rtol=1e-5)
        np.testing.assert_allclose(doubled, a * 2)
    assert len(f.fn.plans) == 1


def test_results_are_the_callers():
    x = tt.fmatrix()
    there = as_opencl_variable(x, "dev0")
    f = on_device([x], [x * 2, *(as_opencl_variable(out, "dev0") for out in (there + 1, (there * 3)[::-1]))])
    kept = [f(floats(8, 8, seed=seed)) for seed in range(5)]
    assert len(f.fn.plans) == 1
    for seed, (doubled, more, flipped) in enumerate(kept):
        assert isinstance(more, DeviceArray) and isinstance(flipped, DeviceArray)
        np.testing.assert_allclose(doubled, floats(8, 8, seed=seed) * 2)
        np.testing.assert_allclose(np.asarray(more), floats(8, 8, seed=seed) + 1)
        np.testing.assert_allclose(np.asarray(flipped), floats(8, 8, seed=seed)[::-1] * 3)


def test_results_may_be_overwritten_where_they_are_borrowed():
    x = tt.fmatrix()
    there = as_opencl_variable(x + 1, "dev0")
    twice = as_opencl_variable(there * 2, "dev0")
    f = theano.function([x], [theano.Out(there, borrow=True), theano.Out(twice)], mode=MODE)
    lent, kept = zip(*[f(floats(8, 8, seed=seed)) for seed in range(5)])
    assert lent[-1].base_data.int_ptr == lent[-2].base_data.int_ptr
    np.testing.assert_allclose(np.asarray(lent[-1]), floats(8, 8, seed=4) + 1)
    np.testing.assert_allclose(np.asarray(kept[-2]), (floats(8, 8, seed=3) + 1) * 2)


def test_values_of_the_host_that_others_see_are_computed_each_time():
    x, t = tt.fvector(), theano.shared(np.array([2, 4, 1], "int32"), "t", target="cpu")
    f = on_device([x], [(t + 1)[:2][tt.constant([0])], t[:2], as_opencl_variable(x * 2, "dev0")], updates=[(t, t)])
    for number in range(4):
        first, part, _ = f(np.ones(2, "float32"))
        assert first.tolist() == [3] and part.tolist() == [2, 4]
        part[:] = number  # the caller may change its result
    t.set_value(np.array([5, 6, 7], "int32"))
    assert f(np.ones(2, "float32"))[1].tolist() == [5, 6]


def test_a_function_that_is_freed_goes_on():
    x = tt.fvector()
    f = on_device([x], tt.exp(x) * 2)
    for seed in range(5):
        np.testing.assert_allclose(np.asarray(f(floats(3, seed=seed))), np.exp(floats(3, seed=seed)) * 2, rtol=1e-5)
        f.free()


def test_copies_that_share_storage_have_plans_of_their_own():
    x, w = tt.fvector(), theano.shared(np.zeros(3, "float32"), "w")
    f = on_device([x], tt.exp(x) * 2, updates=[(w, w + x)])
    g = f.copy(share_memory=True)
    for seed in range(5):
        value = floats(3, seed=seed)
        np.testing.assert_allclose(np.asarray(f(value)), np.exp(value) * 2, rtol=1e-5)
        np.testing.assert_allclose(np.asarray(g(value * 2)[0]), np.exp(value * 2) * 2, rtol=1e-5)
    np.testing.assert_allclose(w.get_value(), sum(floats(3, seed=seed) * 3 for seed in range(5)), rtol=1e-5)


def test_each_shape_has_its_plan():
    x = tt.fmatrix()
    f = on_device([x], tt.exp(x).sum(axis=1))
    for _ in range(3):
        for rows in (2, 5, 0, 1):
            value = floats(rows, 3, seed=rows)
            np.testing.assert_allclose(np.asarray(f(value)), np.exp(value).sum(axis=1), rtol=1e-5)
    assert len(f.fn.plans) == 4


def test_old_plans_go():
    x = tt.fvector()
    f = on_device([x], tt.exp(x))
    for n in range(1, PLAN_CACHE_SIZE + 4):
        for _ in range(2):
            np.testing.assert_allclose(np.asarray(f(np.ones(n, "float32"))), np.exp(np.ones(n)), rtol=1e-6)
    assert len(f.fn.plans) == PLAN_CACHE_SIZE


def test_shapes_that_never_come_again_are_not_recorded_for_ever():
    x = tt.fvector()
    f = on_device([x], tt.exp(x))
    for n in range(1, MAX_UNUSED_RECORDINGS + 5):
        np.testing.assert_allclose(np.asarray(f(np.ones(n, "float32"))), np.exp(np.ones(n)), rtol=1e-6)
    assert not f.fn.plans


def train(mode):
    """Train a net with momentum on minibatches of a shared array, at a changing rate."""
    rng = np.random.RandomState(3)
    data = theano.shared(rng.standard_normal((40, 6)).astype("float32"))
    classes = theano.shared(rng.randint(0, 3, 40))
    weights = theano.shared(rng.standard_normal((6, 3)).astype("float32"))
    velocity = theano.shared(np.zeros((6, 3), "float32"))
    index, rate = tt.lscalar(), tt.fscalar()
    x, y = tt.fmatrix(), tt.lvector()
    cost = tt.nnet.categorical_crossentropy(tt.nnet.softmax(x.dot(weights)), y).mean()
    step = np.float32(0.9) * velocity - rate * tt.grad(cost, weights)
    part = slice(index * 5, (index + 1) * 5)
    function = theano.function(
        [index, rate],
        cost,
        updates=[(velocity, step), (weights, weights + step)],
        givens={x: data[part], y: classes[part]},
        mode=mode,
    )
    costs = [float(function(i % 8, np.float32(0.1 / (1 + i // 8)))) for i in range(24)]
    return function, costs, weights.get_value()


@pytest.mark.slow
def test_minibatches_rates_and_updates():
    _, wanted, wanted_weights = train(theano.compile.get_default_mode().excluding("opencl"))
    f, costs, weights = train(MODE)
    np.testing.assert_allclose(costs, wanted, rtol=1e-5)
    np.testing.assert_allclose(weights, wanted_weights, rtol=1e-4, atol=1e-6)
    assert len(f.fn.plans) == 1


def test_shared_arrays_that_are_replaced():
    w = theano.shared(floats(4), target="dev0")
    f = on_device([], w * 2, updates=[(w, w + 1)])
    for _ in range(3):
        f()
    w.set_value(np.zeros(4, "float32"))
    for n in range(4):
        np.testing.assert_allclose(np.asarray(f()), np.full(4, 2 * n))
    np.testing.assert_allclose(w.get_value(), np.full(4, 4))


def test_two_functions_over_one_state():
    w = theano.shared(np.zeros((3, 3), "float32"), target="dev0")
    more = on_device([], [], updates=[(w, w + 1)])
    turned = on_device([], [], updates=[(w, w.T * 2)])
    wanted = np.zeros((3, 3))
    for _ in range(4):
        more(), more(), turned()
        wanted = (wanted + 2).T * 2
    np.testing.assert_allclose(w.get_value(), wanted)


def test_arrays_that_change_places():
    a, b = (theano.shared(floats(5, seed=seed), target="dev0") for seed in (1, 2))
    swap = on_device([], [], updates=[(a, b * 2), (b, a * 2)])
    for _ in range(5):
        swap()
    np.testing.assert_allclose(a.get_value(), floats(5, seed=2) * 32)
    np.testing.assert_allclose(b.get_value(), floats(5, seed=1) * 32)


def test_an_array_that_grows():
    w = theano.shared(np.ones(1, "float32"), target="dev0")
    f = on_device([], [], updates=[(w, tt.concatenate([w, w + 1]))])
    for _ in range(5):
        f()
    np.testing.assert_allclose(w.get_value().sum(), sum(1 + bin(n).count("1") for n in range(32)))


@pytest.mark.slow
def test_loops():
    x, h = tt.ftensor3(), tt.fmatrix()
    w = theano.shared(floats(4, 4) / 4)
    states, _ = theano.scan(lambda a, b: tt.tanh(a + b.dot(w)), sequences=x, outputs_info=h)
    cost = states[-1].sum()
    f = theano.function([x, h], [cost, *tt.grad(cost, [x, w])], mode=MODE)
    g = theano.function([x, h], [cost, *tt.grad(cost, [x, w])])
    for seed in range(5):
        values = floats(6, 3, 4, seed=seed), floats(3, 4, seed=seed)
        for got, wanted in zip(f(*values), g(*values)):
            np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-6)
    assert len(f.fn.plans) == 1


def test_what_the_host_computes_between():
    x = tt.fmatrix()
    order = tt.argsort(x.sum(axis=1).transfer("cpu"))  # computed by the host, from device values
    f = on_device([x], tt.exp(x[order]))
    for seed in range(4):
        value = floats(6, 2, seed=seed)
        np.testing.assert_allclose(np.asarray(f(value)), np.exp(value[np.argsort(value.sum(axis=1))]), rtol=1e-5)


def test_masks_of_changing_length():
    x = tt.fvector()
    f = on_device([x], tt.exp(x[tt.nonzero(x > 0)[0]]) * 2)
    for seed in range(5):
        value = floats(20, seed=seed)
        np.testing.assert_allclose(np.asarray(f(value)), np.exp(value[value > 0]) * 2, rtol=1e-5)


@pytest.mark.slow
def test_sizes_and_indexes_need_no_compiler():
    x, i = tt.fmatrix(), tt.lscalar()
    function = on_device([x, i], tt.exp(x)[: x.shape[0] - i * 2].reshape((x.shape[1], -1)))
    host = theano.function([x, i], x[: x.shape[0] - i * 2], mode=MODE.excluding("opencl"))
    thunks = dict(zip(function.maker.fgraph.toposort(), function.fn.thunks))
    small = [node for node in thunks if isinstance(node.outputs[0].type, tt.TensorType)]
    assert small and not any(hasattr(thunks[node], "cthunk") for node in small)
    if theano.config.cxx:
        assert any(hasattr(thunk, "cthunk") for thunk in host.fn.thunks)
    value = floats(6, 2)
    np.testing.assert_allclose(np.asarray(function(value, 1)), np.exp(value[:4]).reshape(2, -1), rtol=1e-6)


@pytest.mark.slow
def test_what_is_computed_of_a_few_numbers_needs_no_compiler():
    x, v = tt.fmatrix(), tt.fvector()
    sizes = tt.cast(tt.stack([x.shape[0], x.shape[1] * 2]), "float32")
    function = on_device([x, v], [tt.exp(x) * sizes.sum(), sizes, (v * 2).transfer("cpu")])
    graph = function.maker.fgraph
    few = [node for node in graph.apply_nodes if is_small(node)]
    assert any(node.outputs[0].type.dtype == "float32" and node.outputs[0].type.ndim == 1 for node in few)
    thunks = dict(zip(graph.toposort(), function.fn.thunks))
    assert not any(hasattr(thunks[node], "cthunk") for node in few)
    value = floats(3, 2)
    first, second, third = function(value, value[0])
    np.testing.assert_allclose(np.asarray(first), np.exp(value) * 7, rtol=1e-5)
    np.testing.assert_array_equal(second, [3, 4])
    np.testing.assert_allclose(np.asarray(third), value[0] * 2)


def test_vectors_of_any_length_are_not_small():
    v = tt.fvector()
    assert not is_small((v * 2).owner)
    assert is_small((tt.lvector() * 2).owner)
    assert is_small((tt.stack([tt.lscalar(), tt.lscalar()]) * 0.5).owner)


def test_two_contexts():
    x = tt.fmatrix()
    there = as_opencl_variable(tt.exp(as_opencl_variable(x, "dev0").transfer("dev1")), "dev1")
    f = on_device([x], [as_opencl_variable(x * 2, "dev0"), there])
    for seed in range(4):
        value = floats(3, 2, seed=seed)
        doubled, powers = f(value)
        np.testing.assert_allclose(np.asarray(doubled), value * 2)
        np.testing.assert_allclose(np.asarray(powers), np.exp(value), rtol=1e-5)
    assert len(f.fn.plans) == 1


def test_prints_at_each_call():
    seen = []
    x = tt.fvector()
    f = on_device([x], theano.printing.Print("x", global_fn=lambda op, value: seen.append(1))(x * 2) + 1)
    for _ in range(4):
        f(np.ones(3, "float32"))
    assert len(seen) == 4


def test_after_an_error_all_is_well():
    x, i = tt.fmatrix(), tt.lscalar()
    f = on_device([x, i], tt.exp(x)[i] + 1)
    value = floats(4, 3)
    for at in (0, 1, 2):
        np.testing.assert_allclose(np.asarray(f(value, at)), np.exp(value[at]) + 1, rtol=1e-5)
    with pytest.raises(IndexError, match="out of bounds"):
        f(value, 9)
    for at in (3, 0):
        np.testing.assert_allclose(np.asarray(f(value, at)), np.exp(value[at]) + 1, rtol=1e-5)


@pytest.mark.slow
def test_memory_is_shared_by_values_that_do_not_meet():
    x = tt.fvector()
    y = x
    for n in range(12):
        y = tt.sort(y) + n  # sorting ops separate the additions, which are therefore not fused
    f = on_device([x], y)
    for _ in range(2):
        f(floats(10_000))
    (plan,) = f.fn.plans
    assert plan.buffers.nbytes < plan.buffers.nbytes_without_reuse / 2


def test_what_is_done_behind_our_back_is_not_repeated_blindly():
    class Counting(OpenCLKernelBase):
        """An identity op that itself calls OpenCL."""

        __props__ = ()
        repeatable = False
        calls = 0

        def make_node(self, x):
            x = as_opencl_variable(x, "dev0")
            return theano.Apply(self, [x], [x.type()])

        def gpu_kernels(self, node, name):
            return []

        def run(self, node, inputs, outputs, kernels, context):
            Counting.calls += 1
            outputs[0][0] = inputs[0].copy()

    x = tt.fvector()
    f = on_device([x], Counting()(x) + 1)
    for seed in range(4):
        np.testing.assert_allclose(np.asarray(f(floats(5, seed=seed))), floats(5, seed=seed) + 1)
    assert Counting.calls == 4


def test_the_flag_turns_it_off():
    x = tt.fvector()
    with theano.change_flags(**{"optdb.plans": False}):
        f = theano.function([x], tt.exp(x), mode=MODE)
    assert not isinstance(f.fn, PlannedVM)
    np.testing.assert_allclose(np.asarray(f(np.ones(3, "float32"))), np.exp(np.ones(3)), rtol=1e-6)


@pytest.mark.slow
def test_without_a_compiler_there_are_plans_as_well():
    code = """
        import numpy as np
        import optdb
        import theano
        x = theano.tensor.fvector()
        w = theano.shared(np.zeros(3, "float32"))
        f = theano.function([x], (w * x).sum(), updates=[(w, w + x)])
        print(theano.config.cxx == "", *[float(f(np.ones(3, "float32"))) for _ in range(4)], len(f.fn.plans))
    """
    done = run_code(code, flags="cxx=,optdb.device=opencl")
    assert done.stdout.strip() == "True 0.0 3.0 6.0 9.0 1", done.stderr


def test_more_than_the_device_has():
    from optdb.opencl import get_context
    from optdb.runtime.buffer_assignment import BufferAssignment, Liveness
    from optdb.runtime.commands import Memory

    context = get_context("dev0")
    half = context.device.global_mem_size // 2 + 1
    with pytest.raises(MemoryError, match="bytes at once"):
        BufferAssignment(Liveness({Memory(half, context.cl_context): (0, 1), Memory(half, context.cl_context): (1, 2)}))


def test_commands_outside_of_recordings_are_done():
    from optdb.opencl import get_context

    context = get_context("dev0")
    program = cl.Program(context.cl_context, "__kernel void set(__global int *a) { a[get_global_id(0)] = 7; }").build()
    buffer = cl.Buffer(context.cl_context, cl.mem_flags.READ_WRITE, 16)
    kernel = cl.Kernel(program, "set")
    kernel.set_args(buffer)
    enqueue(EnqueueKernel(context.queue, kernel, (4,), None, (buffer,)))
    out = np.empty(4, np.int32)
    cl.enqueue_copy(context.queue, out, buffer)
    assert out.tolist() == [7] * 4


def test_a_result_that_is_a_shared_array_is_what_it_was_before_the_update():
    w = theano.shared(np.zeros(3, "float32"), target="dev0")
    f = theano.function([], [w, w + 1], updates=[(w, w + 1)], mode=MODE)
    for call in range(4):
        before, after = f()
        np.testing.assert_equal([np.asarray(before), np.asarray(after)], [[call] * 3, [call + 1] * 3])


def test_only_what_sees_another_value_computes(monkeypatch):
    x, i, w = tt.fmatrix(), tt.lscalar(), theano.shared(floats(10, 10), target="dev0")
    f = on_device([x, i], tt.tanh(tt.tanh(x.dot(w))[i] + 1).sum())
    run, computed = f.fn.linked.run, []
    monkeypatch.setattr(f.fn.linked, "run", lambda number: (computed.append(number), run(number)))
    numbers = []
    for seed, at in enumerate((2, 2, 2, 2, 3, 3, 2, 2)):
        value = floats(10, 10, seed=seed)  # an array with too many elements to be compared with that of the last call
        computed.clear()
        np.testing.assert_allclose(
            np.asarray(f(value, at)), np.tanh(np.tanh(value.dot(floats(10, 10)))[at] + 1).sum(), rtol=1e-4
        )
        numbers.append(len(computed))
    nodes = len(f.fn.linked.nodes)
    assert numbers[0] == nodes
    # Each call transfers the array; the row and its dependents are only computed if the row's index has changed.
    assert numbers[3] == numbers[7] == 1
    assert 1 < numbers[4] < nodes


@pytest.mark.slow
def test_a_step_count_of_the_hosts_leaves_the_rest_together():
    x = tt.fmatrix()
    w = theano.shared(floats(10, 10), target="dev0")
    count = theano.shared(np.float32(0), target="cpu")
    after = count + 1
    slope = tt.grad(tt.tanh(x.dot(w)).sum(), w)
    rate = (1 - np.float32(0.9) ** after) / np.float32(10)
    f = on_device([x], [], updates=[(w, w - as_opencl_variable(rate, "dev0") * slope), (count, after)])
    value, wanted = floats(5, 10), floats(10, 10)
    for number in range(1, 7):
        f(value)
        wanted = wanted - (1 - 0.9**number) / 10 * value.T.dot(1 - np.tanh(value.dot(wanted)) ** 2)
        np.testing.assert_allclose(np.asarray(w.get_value()), wanted, rtol=1e-4, atol=1e-5)
        assert count.get_value() == number
    (plan,) = f.fn.plans
    assert not any(step.stale for step in plan._steps if isinstance(step, CommandSegment))


def brought_once(function):
    """Return the number of recorded commands that a function's plan need not repeat."""
    plan = function.fn.plans[-1]
    return sum(len(segment.commands) for segment in plan._recording.segments) - plan.commands


def rows_of(x):
    """Return the number of rows of x, which the host computes and copies to the device."""
    return as_opencl_variable(tt.cast(x.shape[0], "float32"), "dev0")


@pytest.mark.slow
def test_what_the_host_computes_of_shapes_is_brought_once():
    x = tt.fmatrix()
    f = on_device([x], tt.tanh(x).sum(axis=0) * rows_of(x))
    for rows in (3, 3, 5, 5, 3, 5, 3):
        data = floats(rows, 4, seed=rows)
        np.testing.assert_allclose(np.asarray(f(data)), np.tanh(data).sum(axis=0) * rows, rtol=1e-5, atol=1e-6)
    # Two commands need not be repeated: they copy the number of rows, and the same number as a broadcast row.
    assert brought_once(f) == 2


def test_what_is_overwritten_or_returned_is_brought_each_time():
    x = tt.fmatrix()
    state = theano.shared(np.float32(0), target="dev0")
    overwritten = on_device([x], tt.exp(rows_of(x)))
    returned = on_device([x], rows_of(x))
    following = on_device([x], tt.tanh(x), updates=[(state, rows_of(x))])
    for seed in range(5):
        rows = 2 + seed // 3
        data = floats(rows, 3, seed=seed)
        np.testing.assert_allclose(np.asarray(overwritten(data)), np.exp(rows), rtol=1e-6)
        np.testing.assert_array_equal(np.asarray(returned(data)), rows)
        following(data)
        np.testing.assert_array_equal(state.get_value(), rows)
        state.set_value(np.float32(-1))
    assert any(getattr(node.op, "destroy_map", None) for node in overwritten.maker.fgraph.apply_nodes)
    assert not any(map(brought_once, (overwritten, returned)))


@pytest.mark.slow
def test_what_is_recorded_of_the_host_is_not_overwritten_by_calls_of_other_shapes():
    """Theano's Shape_i overwrites the array in its output storage, so a call must not leave recorded arrays there."""
    x, n = tt.fvector(), tt.iscalar()
    lengths = tt.stack([x.shape[0], x.shape[0] * 2])
    outputs = [x + 1, tt.alloc(np.int32(0), x.shape[0]), tt.arange(x.shape[0] * n), lengths]
    there = as_opencl_variable(tt.cast(lengths, "float32"), "dev0") * 2
    f = on_device([x, n], [*outputs, there])
    for size in (2, 2, 3, 2, 3, 3, 2, 4, 4, 2, 3):
        _, zeros, numbers, both, doubled = f(floats(size), 2)
        np.testing.assert_array_equal(zeros, np.zeros(size))
        np.testing.assert_array_equal(numbers, np.arange(2 * size))
        np.testing.assert_array_equal(both, [size, 2 * size])
        np.testing.assert_array_equal(np.asarray(doubled), [2 * size, 4 * size])
    assert len(f.fn.plans) == 3


def test_a_number_that_a_result_would_overwrite_outlives_the_call():
    """Theano computes `-length` in the memory of the length, and clears the storage of both before each call."""
    x = tt.fvector()
    there = theano.shared(np.int32(3), target="dev0")
    state = theano.shared(np.int64(0))
    f = on_device([x], [-there, -x.shape[0]], updates=[(state, -(x.shape[0] + 1))])
    assert any(getattr(node.op, "destroy_map", None) for node in f.maker.fgraph.apply_nodes)
    for size in (2, 2, 2, 2, 3, 3, 3, 2, 2):
        negative, length = f(floats(size))
        assert (np.asarray(negative), length) == (-3, -size)
        assert state.get_value() == -(size + 1)
        state.set_value(1)


def test_a_simulator_keeps_numbers_that_a_next_value_would_overwrite():
    x, state, w = tt.fvector(), theano.shared(np.int64(0)), theano.shared(np.float32(2))
    updates = [(state, -x.shape[0]), (w, w * x.sum())]
    sim = optdb.SimulatorOCL(theano.function([x], x * 2, updates=updates, mode=theano.Mode("py")), "dev0")
    for size in (2, 2, 2, 2, 3, 3, 3, 2):
        np.testing.assert_array_equal(sim(np.ones(size, "float32")), np.full(size, 2))
        assert sim.get(state) == -size


WITHOUT_A_COMPILER = """
import numpy as np
import optdb, theano, theano.tensor as tt
from optdb.opencl import contexts

assert not theano.config.cxx
contexts.register("dev0", "opencl")
x = tt.fvector()
there = theano.shared(np.int32(3), target="dev0")
f = theano.function([x], [-there, -x.shape[0]], mode=theano.compile.get_default_mode().including("opencl"))
assert any(getattr(node.op, "destroy_map", None) for node in f.maker.fgraph.apply_nodes)
print([int(f(np.zeros(size, "float32"))[1]) for size in (2, 2, 2, 3, 3, 3, 2, 2)])
"""


def test_without_a_compiler_small_work_of_the_host_overwrites_nothing_either():
    done = run_code(WITHOUT_A_COMPILER, flags="cxx=")
    assert done.stdout == "[-2, -2, -2, -3, -3, -3, -2, -2]\n", done.stderr
