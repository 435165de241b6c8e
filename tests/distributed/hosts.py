"""Runs synchronous steps without a device: the workers are threads that call Theano functions."""

from __future__ import annotations

import pickle
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import theano

from optdb.distributed.batches import axes_of, parts_of
from optdb.distributed.exchange import FINAL, Exchange, Mailbox
from optdb.distributed.sharding.collective import taking_part
from optdb.distributed.sharding.cutting import synchronous_training
from optdb.distributed.training_functions import put_together
from optdb.distributed.worker_threads import ThreadLink
from optdb.host.theano.functions.originals import original_of

MODE = theano.Mode(linker="py", optimizer=None)


def compiled(inputs, outputs, updates=(), mode=MODE):
    return theano.function(inputs, outputs, updates=list(updates), mode=mode, on_unused_input="ignore")


def links(workers, timeout=20, link=ThreadLink):
    names = [f"worker {rank}" for rank in range(workers)]
    mailboxes = [Mailbox(timeout) for _ in range(workers)]
    return [link(rank, mailboxes, names) for rank in range(workers)]


def in_threads(work, workers):
    """Call `work(rank)` for all ranks at the same time; return the results by rank."""
    with ThreadPoolExecutor(workers) as threads:
        futures = [threads.submit(work, rank) for rank in range(workers)]
        return [future.result() for future in futures]


def spread_step(f, values, workers, axes=None, reductions=None, gradients=None, own_statistics=False):
    """Run one synchronous step of a compiled function; return its results, and each worker's next values."""
    original = original_of(f)
    split = axes_of(original.arguments, axes)
    training = synchronous_training(original, split, reductions or {}, gradients, own_statistics)
    parts = parts_of(original.arguments, [np.asarray(value) for value in values], split, workers)
    active = sum(part.rows > 0 for part in parts)
    between = links(workers)
    pickled = pickle.dumps(training)
    trainings = [pickle.loads(pickled) for _ in range(workers)]  # Theano's functions do not support concurrent calls

    def work(rank):
        training, part = trainings[rank], parts[rank]
        exchange = Exchange(between[rank], rank, active, workers - active, 1)
        if not part.rows:
            return None
        with taking_part(exchange):
            own = training.gradients(*part.arguments, part.length, part.first, 1)
        totals = exchange.all_reduce(FINAL, [var.get_value(borrow=True) for var in training.summands])
        for var, total in zip(training.sums, totals, strict=True):
            var.set_value(total)
        taken = [*(part.arguments[i] for i in training.same), part.length]
        wholes = list(training.results(*taken)) if training.results is not None else []
        training.update(*taken)
        return wholes, list(own), [shared.get_value() for shared in training.shared]

    done = [result for result in in_threads(work, workers) if result is not None]
    rows = [part.rows for part in parts if part.rows]
    return put_together(training.outputs, done[0][0], [own for _, own, _ in done], rows), [state for *_, state in done]


def check_step(f, values, workers=(2, 3), rtol=1e-10, **options):
    """Check that synchronous steps of several workers agree with a call of the function itself."""
    start = [shared.get_value() for shared in f.get_shared()]
    for count in workers:
        results, states = spread_step(f, values, count, **options)
        expected = f(*values)
        expected = list(expected) if isinstance(expected, list) else [expected]
        for found, wanted in zip(results, expected, strict=True):
            assert np.shape(found) == np.shape(wanted)
            np.testing.assert_allclose(found, wanted, rtol=rtol, atol=1e-12)
        for state in states:
            for found, shared in zip(state, f.get_shared(), strict=True):
                np.testing.assert_allclose(found, shared.get_value(), rtol=rtol, atol=1e-12)
        for shared, value in zip(f.get_shared(), start, strict=True):
            shared.set_value(value)
