"""Helpers: a small training step, and devices for two threads."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import replace

import numpy as np
import pytest
import theano
import theano.tensor as tt

import optdb
from optdb.opencl.registry import context_of, get_context
from optdb.runtime.errors import DeviceError
from profiles.models import parts
from tests.opencl_device import SMALLEST_BATCHES

WIDTH = 6


def step(name="train", outputs=None):
    """Return a training step with momentum; it takes x, y and a rate, and returns the loss and each row's result."""
    rng = np.random.RandomState(0)
    x, y, rate = tt.dmatrix("x"), tt.dvector("y"), tt.dscalar("rate")
    w = theano.shared(rng.standard_normal((WIDTH, 4)), "w")
    v = theano.shared(rng.standard_normal(4), "v")
    rows = tt.tanh(x.dot(w)).dot(v)
    loss = tt.sqr(rows - y).mean()
    updates = parts.momentum(loss, [w, v], rate)
    for number, shared in enumerate(updates):
        shared.name = shared.name or f"velocity_{number}"
    mode = theano.Mode("py", "fast_run")
    return theano.function([x, y, rate], [loss, rows], updates=updates, name=name, mode=mode)


def wide_step():
    """Return a step and batches; each of three workers gets more than `SMALL_BYTES` of the step's gradient."""
    rng = np.random.RandomState(0)
    w = theano.shared(rng.standard_normal((300, 200)), "w")
    x, y = tt.dmatrix("x"), tt.dmatrix("y")
    loss = tt.sqr(tt.tanh(x.dot(w)) - y).mean()
    updates = parts.momentum(loss, [w], 0.1)
    f = theano.function([x, y], [loss], updates=updates, name="wide", mode=theano.Mode("py", "fast_run"))
    return f, [(rng.standard_normal((12, 300)), rng.standard_normal((12, 200))) for _ in range(8)]


def batches(count, rows=7):
    rng = np.random.RandomState(1)
    return [(rng.standard_normal((rows, WIDTH)), rng.standard_normal(rows), 0.05) for _ in range(count)]


def alone(f, given):
    """Run the steps on one device; return the results, and the state afterwards."""
    with optdb.SimulatorOCL(f) as sim:
        results = [sim(*batch) for batch in given]
        return results, [sim.get(shared) for shared in f.get_shared()]


def state_of(train, f):
    """Return the values of a function's shared variables after training."""
    return [train.get(shared) for shared in f.get_shared()]


def check(f, found, state, given, rtol=1e-10):
    """Compare results and the state with those of one device."""
    results, expected = alone(f, given)
    for ours, theirs in zip(found, results, strict=True):
        check_values(ours, theirs, rtol)
    check_values(state, expected, rtol)


def check_state(f, state, given):
    """Compare the state with that of one device."""
    check_values(state, alone(f, given)[1])


def check_values(found, expected, rtol=1e-10):
    """Compare arrays with expected ones."""
    for value, wanted in zip(found, expected, strict=True):
        np.testing.assert_allclose(value, wanted, rtol=rtol)


def two_devices():
    """Return two halves of the default device, which batch even short command lists; skip if it cannot be divided."""
    try:
        for part in ("opencl[1/2]", "opencl[2/2]"):
            optdb.SimulatorOCL(theano.function([], [], mode=theano.Mode("py")), part).close()
            context = get_context(context_of(part))
            context.options = replace(context.options, batch_thresholds=SMALLEST_BATCHES)
    except DeviceError as error:
        pytest.skip(str(error))
    return ["opencl[1/2]", "opencl[2/2]"]


@contextmanager
def with_memory_of_their_own(devices):
    """Make devices seem to have their own memory instead of sharing the host's."""
    contexts = [get_context(context_of(device)) for device in devices]
    profiles = [context.profile for context in contexts]
    for context in contexts:
        context.profile = replace(context.profile, shares_host_memory=False)
    try:
        yield
    finally:
        for context, profile in zip(contexts, profiles, strict=True):
            context.profile = profile
