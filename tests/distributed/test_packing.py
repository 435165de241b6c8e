"""For each dtype, a step transfers all arrays to be added up as one vector, and all sums as one vector."""

from __future__ import annotations

import functools

import numpy as np
import pytest
import theano
import theano.tensor as tt

import optdb
from optdb.distributed import DataParallel, WorkerFailed
from optdb.distributed.batches import axes_of, parts_of
from optdb.distributed.exchange import FINAL, Exchange
from optdb.distributed.replicas import replica_of
from optdb.distributed.sharding.cutting import synchronous_training
from optdb.host.theano.functions.originals import original_of
from optdb.lifters.transfers import count_transfers
from optdb.opencl.registry import context_of, get_context
from optdb.opencl.simulator import pieces as of_pieces
from optdb.opencl.simulator.execution.io_binding import RESULTS
from optdb.opencl.simulator.packing import TO_DEVICE, TO_HOST, PackedVariables, _Kept
from optdb.opencl.simulator.pieces import PackedTerm, Piece, PiecewiseDownload
from optdb.runtime.buffer_assignment import ALIGNMENT
from optdb.runtime.commands import CommandList
from optdb.runtime.dispatch import listened
from optdb.runtime.scripts import IMMEDIATE
from tests.distributed.hosts import in_threads, links
from tests.distributed.training import two_devices, with_memory_of_their_own

pytestmark = pytest.mark.usefixtures("engine_where_quick")

ROWS, WIDTH = 7, 5


@pytest.fixture(scope="module")
def devices():
    return two_devices()


@pytest.fixture(params=["shared memory", "memory of its own"])
def memory(request, devices):
    if request.param == "shared memory":
        yield
    else:
        with with_memory_of_their_own(devices):
            yield


def mixed():
    """Return a step with parameters of several dtypes, one without elements, a counter, and outputs of all kinds."""
    rng = np.random.RandomState(0)
    x, y, table = tt.dmatrix("x"), tt.ivector("y"), tt.dvector("table")
    shared = {
        "double": theano.shared(rng.standard_normal((WIDTH, 4)), "double"),
        "single": theano.shared(rng.standard_normal((4, 3)).astype("float32"), "single"),
        "half": theano.shared(rng.standard_normal(3).astype("float16"), "half"),
        "empty": theano.shared(np.zeros((0, 4)), "empty"),
        "scale": theano.shared(0.5, "scale"),
        "seen": theano.shared(np.int64(0), "seen"),
    }
    hidden = tt.tanh(x.dot(shared["double"]) * shared["scale"])
    rows = tt.nnet.sigmoid(hidden.astype("float32").dot(shared["single"])) * shared["half"].astype("float32")
    loss = tt.sqr(rows.sum(axis=1) - table[y]).mean() + tt.sqr(tt.dot(shared["empty"], hidden.T)).sum()
    right = tt.eq(rows.argmax(axis=1), y).sum()
    floats = [shared[name] for name in ("half", "empty", "double", "scale", "single")]
    updates = [(var, var - (0.1 * gradient).astype(var.dtype)) for var, gradient in zip(floats, tt.grad(loss, floats))]
    updates.append((shared["seen"], shared["seen"] + right))
    outputs = [right, rows, loss, x.sum(axis=0)]
    return theano.function([x, y, table], outputs, updates=updates, mode=theano.Mode("py", "fast_run"), name="mixed")


def batch(rows=ROWS, seed=0):
    rng = np.random.RandomState(seed)
    return rng.standard_normal((rows, WIDTH)), rng.randint(0, 3, rows).astype("int32"), np.array([1.0, -1.0, 0.5])


def check(f, train, batches):
    """Compare steps with those of one device."""
    with optdb.SimulatorOCL(f) as alone:
        for each in batches:
            for found, wanted in zip(train(*each), alone(*each), strict=True):
                assert found.dtype == wanted.dtype and found.shape == wanted.shape
                np.testing.assert_allclose(found, wanted, rtol=2e-3, atol=2e-3)
        for shared in f.get_shared():
            np.testing.assert_allclose(train.get(shared), alone.get(shared), rtol=2e-3, atol=2e-3)


@pytest.mark.thorough_cases("shared memory")
@pytest.mark.slow
def test_any_dtypes_and_lengths(devices, memory):
    f = mixed()
    rows = [ROWS, ROWS, ROWS, 1, 1, 2, 2, ROWS, 8, 8]
    with DataParallel(f, devices=devices, axes={"table": None}) as train:
        check(f, train, [batch(count, seed) for seed, count in enumerate(rows)])


@pytest.mark.slow
def test_after_an_error(devices, memory):
    f = mixed()
    x, y, table = batch()
    wrong = y.copy()
    wrong[-1] = 9
    with DataParallel(f, devices=devices, axes={"table": None}, timeout=20) as train, optdb.SimulatorOCL(f) as alone:
        for number in range(3):
            np.testing.assert_allclose(train(x, y, table)[2], alone(x, y, table)[2], rtol=1e-4, err_msg=str(number))
            with pytest.raises(WorkerFailed):
                train(x, wrong, table)
        np.testing.assert_allclose(train.get("double"), alone.get("double"), rtol=1e-5)


def layers(count=6, biases_dtype="float32"):
    """Return a training step of a net with many small parameters of two dtypes."""
    rng = np.random.RandomState(0)
    x, y = tt.dmatrix("x"), tt.dvector("y")
    weights = [theano.shared(rng.standard_normal((WIDTH, WIDTH)), f"w{i}") for i in range(count)]
    biases = [theano.shared(np.zeros(WIDTH, biases_dtype), f"b{i}") for i in range(count)]
    hidden = x
    for weight, bias in zip(weights, biases, strict=True):
        hidden = tt.tanh(hidden.dot(weight) + bias)
    loss = tt.sqr(hidden.sum(axis=1) - y).mean()
    shared = [*weights, *biases]
    updates = [(var, var - (0.1 * gradient).astype(var.dtype)) for var, gradient in zip(shared, tt.grad(loss, shared))]
    return theano.function([x, y], loss, updates=updates, mode=theano.Mode("py", "fast_run"), name="layers")


@pytest.mark.slow
@pytest.mark.parametrize("apart", [0, 1, 2])
def test_devices_that_add_up_and_others(devices, apart):
    """The first `apart` devices have their own memory; if all devices have, they add up the vectors themselves."""
    f, rng = layers(), np.random.RandomState(2)
    given = [(rng.standard_normal((rows, WIDTH)), rng.standard_normal(rows)) for rows in (8, 8, 1, 1, 1, 7, 8, 1)]
    with (
        with_memory_of_their_own(devices[:apart]),
        DataParallel(f, devices=devices) as train,
        optdb.SimulatorOCL(f) as alone,
    ):
        assert {link.lends for link in train._group._links} == {apart == len(devices)}
        for each in given:
            np.testing.assert_allclose(train(*each), alone(*each), rtol=1e-4)  # biases are float32
        for shared in f.get_shared():
            np.testing.assert_allclose(train.get(shared), alone.get(shared), rtol=1e-4, atol=1e-5)


def replicas_of(f, devices, args):
    """Return replicas, and a function that lets all replicas prepare and commit a step, and returns their traffic."""
    original = original_of(f)
    axes = axes_of(original.arguments, None)
    training = synchronous_training(original, axes, {}, None, False)
    replicas = [replica_of(training, device) for device in devices]
    between, parts = links(len(devices)), parts_of(original.arguments, list(args), axes, len(devices))

    def step(attempt):
        def work(rank):
            with count_transfers() as traffic:
                replica = replicas[rank]
                replica.prepare(parts[rank], Exchange(between[rank], rank, len(devices), 0, attempt))
                replica.commit(replica.steps + 1)
            return traffic

        return in_threads(work, len(devices))

    return replicas, step


@pytest.mark.slow
def test_a_dtype_is_one_transfer_each_way(devices):
    args = np.random.RandomState(1).standard_normal((8, WIDTH)), np.zeros(8)
    with with_memory_of_their_own(devices):
        replicas, step = replicas_of(layers(), devices, args)
        for attempt in range(1, 4):
            first, second = step(attempt)
        for replica in replicas:
            replica.close()
    # The gradients of twelve parameters and the loss are two vectors: float64 and float32. Only the first worker reads
    # the loss.
    for traffic in (first, second):
        assert traffic.transfers[TO_HOST] == traffic.transfers[TO_DEVICE] == 2
        assert traffic.nbytes[TO_HOST] == traffic.nbytes[TO_DEVICE]
    assert first.transfers[RESULTS] == 1 and RESULTS not in second.transfers


@pytest.mark.slow
def test_where_memory_is_shared_nothing_is_moved(devices):
    args = np.random.RandomState(1).standard_normal((8, WIDTH)), np.zeros(8)
    replicas, step = replicas_of(layers(), devices, args)
    if not get_context(context_of(devices[0])).profile.shares_host_memory:
        pytest.skip("the device has memory of its own")
    for attempt in range(1, 4):
        for traffic in step(attempt):
            assert not traffic.transfers[TO_HOST] and not traffic.transfers[TO_DEVICE]
    for replica in replicas:
        replica.close()


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "complex64"])
@pytest.mark.parametrize("terms", [2, 3, 5])
def test_sums_on_the_device_have_the_same_bits_for_each_worker(devices, dtype, terms):
    rng = np.random.RandomState(terms)
    shapes = [(3, 4), (0, 2), (5, 7)]
    own, sums = ([theano.shared(np.zeros(shape, dtype)) for shape in shapes] for _ in range(2))
    update = theano.function([], [], updates=list(zip(sums, own, strict=True)), mode=theano.Mode("py", "fast_run"))
    with with_memory_of_their_own(devices), optdb.SimulatorOCL(update, devices[0]) as simulator:
        summands, totals = PackedVariables(simulator, own), PackedVariables(simulator, sums)
        (vector,) = summands.download()
        totals.lay_out(shapes)
        vectors = [rng.standard_normal(vector.size).astype(dtype) for _ in range(terms)]
        expected = functools.reduce(np.add, vectors)
        halves = slice(0, vector.size // 2), slice(vector.size // 2, vector.size)
        lent = [PackedTerm(totals) for _ in range(terms)]
        for rank in range(terms):
            summands.open()[0][...] = vectors[rank]
            summands.upload()
            for term, values in zip(lent, vectors, strict=True):
                term.restart()
                for half in halves:
                    term.receive(Piece([(vector.dtype, half, values[half])], [], half is halves[1]), IMMEDIATE)
            totals.add_up(summands, [None if i == rank else term for i, term in enumerate(lent)], IMMEDIATE)
            np.testing.assert_array_equal(totals.download()[0], expected)


def test_what_is_lent_is_yielded_until_each_worker_has_lent_its_last_piece():
    between = links(3)

    def work(rank):
        exchange = Exchange(between[rank], rank, 3, 0, 1)
        exchange.lend(FINAL, [Piece([], [(rank, turn)], turn == rank) for turn in range(rank + 1)])
        return [(sender, piece.events) for sender, piece in exchange.lent(FINAL)]

    first, second, third = in_threads(work, 3)
    assert first == [(1, [(1, 0)]), (2, [(2, 0)]), (1, [(1, 1)]), (2, [(2, 1)]), (2, [(2, 2)])]
    assert second == [(0, [(0, 0)]), (2, [(2, 0)]), (2, [(2, 1)]), (2, [(2, 2)])]
    assert third == [(0, [(0, 0)]), (1, [(1, 0)]), (1, [(1, 1)])]


def test_pieces_leave_while_others_are_computed(devices, monkeypatch):
    """The first of two large variables is sent as soon as it is packed, and the other variables at the end."""
    monkeypatch.setattr(of_pieces, "PIECE_ARRAYS", 1)
    rng = np.random.RandomState(0)
    shapes = [(300, 500), (7,), (200, 800)]
    shared = [theano.shared(rng.standard_normal(shape).astype("float32")) for shape in shapes]
    f = theano.function([], [], updates=[(var, var + 1) for var in shared], mode=theano.Mode("py", "fast_run"))
    with with_memory_of_their_own(devices), optdb.SimulatorOCL(f, devices[0]) as simulator:
        packed = PackedVariables(simulator, shared)
        pieces = PiecewiseDownload(packed)
        kept = _Kept()
        with listened(kept):
            pieces.enqueue({0: packed._cells[0][0]})
        commands = CommandList(command.bind(lambda buffer: (buffer, 0)) for command in kept.commands)
        commands.enqueue()  # not packed yet
        assert [piece.is_last for piece in pieces.end()] == [True]
        (vector,), (whole,) = packed.download(), packed._vectors.values()
        kept.commands.clear()
        with listened(kept):
            pieces.enqueue({0: whole.arrays[0][:1]})  # small
            assert not kept.commands
            pieces.enqueue({0: whole.arrays[0]})
        monkeypatch.setattr(of_pieces, "PIECE_ARRAYS", 2)
        held = _Kept()
        with listened(held):
            pieces.enqueue({1: whole.arrays[1]})  # few
            assert not held.commands
            pieces.enqueue({0: whole.arrays[0]})
        assert held.commands[2].sources == tuple(array.base_data for array in whole.arrays[:2])
        commands = CommandList(command.bind(lambda buffer: (buffer, 0)) for command in kept.commands)
        for _ in range(2):
            pieces.restart()
            commands.enqueue()
            first, last = pieces.end()
            assert (first.is_last, last.is_last) == (False, True)
            parts = [piece.parts[0] for piece in (first, last) if piece.wait() is None]
            np.testing.assert_array_equal(np.concatenate([values for _, _, values in parts]), vector)
            assert parts[0][1].stop == parts[1][1].start and parts[1][1].stop == vector.size


@pytest.mark.slow
@pytest.mark.parametrize(("nbytes", "rest"), [(of_pieces.LAST_PIECE_NBYTES, 1), (ALIGNMENT, 4)])
def test_gradients_leave_in_pieces(devices, monkeypatch, nbytes, rest):
    """Gradients are lent to the exchange in several pieces, and their sums equal those of one device."""
    monkeypatch.setattr(of_pieces, "PIECE_NBYTES", 1)
    monkeypatch.setattr(of_pieces, "PIECE_ARRAYS", 1)
    monkeypatch.setattr(of_pieces, "LAST_PIECE_NBYTES", nbytes)
    lent, lend = [], Exchange.lend

    def counting(self, number, pieces):
        lent.append(len(pieces))
        lend(self, number, pieces)

    monkeypatch.setattr(Exchange, "lend", counting)
    f, rng = layers(biases_dtype="float64"), np.random.RandomState(2)
    given = [(rng.standard_normal((rows, WIDTH)), rng.standard_normal(rows)) for rows in (8, 8, 8, 8, 7, 7, 7, 8, 8)]
    with (
        with_memory_of_their_own(devices),
        DataParallel(f, devices=devices) as train,
        optdb.SimulatorOCL(f) as alone,
    ):
        assert len(train._training.buckets) == 5
        for each in given:
            np.testing.assert_allclose(train(*each), alone(*each), rtol=1e-10)
        for shared in f.get_shared():
            np.testing.assert_allclose(train.get(shared), alone.get(shared), rtol=1e-9)
    # Each of five buckets is lent as one piece. The other numbers (the first layer's matrix, two biases and a loss) are
    # lent as one piece or more.
    assert lent[-1] == 5 + rest
