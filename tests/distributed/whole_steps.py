"""A step whose state shows whether it has run as a whole, and helpers that interrupt calls at each place."""

from __future__ import annotations

import signal

import numpy as np
import theano
import theano.tensor as tt
from theano.tensor.opt import Assert

from optdb.device.plans.linked import LinkedFunction
from tests.interrupts import interrupt_at

#: The batch's four rows each add 1 to each element of the variable `rows`.
BATCH = np.ones((4, 3), "float32")


def same(value):
    return value


def counting_step(of_state=same, of_next=same, of_result=same):
    """Return a step that counts rows and steps; the caller adds nodes to the gradients, the update and the results.

    The caller's functions are applied to a number that differs in each step, to a next value, and to the result.
    """
    x = tt.fmatrix("x")
    rows, steps = theano.shared(np.zeros(3, "float32"), "rows"), theano.shared(np.int64(0), "steps")
    seen = rows.min() + 1
    following = of_next(rows + tt.sgn(x * (of_state(seen) / seen)).sum(axis=0))
    result = of_result(x.sum() + rows.sum())
    return theano.function([x], result, updates=[(rows, following), (steps, steps + 1)], mode=theano.Mode("py"))


def limited(following):
    """Return a next value that raises an error after four steps."""
    return Assert("too large")(following, tt.lt(following.sum(), 50))


def check_whole(train, expected=None):
    """Check that all replicas have the state after the same number of steps; return this number."""
    made = train.steps
    assert expected is None or made in expected
    for rows, steps in [train._group.state(), *(replica.state() for replica in replicas_of(train))]:
        assert steps == made, (rows, steps, made)
        np.testing.assert_array_equal(rows, np.full(3, 4 * steps, "float32"))
    return made


def replicas_of(train):
    """Return all replicas: those of threads, or those of dask's workers in this process, once they have committed."""
    if hasattr(train._group, "_replicas"):
        return train._group._replicas
    from optdb.distributed import workers

    sessions = [each for each in workers._sessions.values() if each.name == train._group._session]
    for session in sessions:
        session.state(train.steps)
    return [session.replica for session in sessions]


def call(train):
    train(BATCH)


def train_three(train):
    train.train([(BATCH,)] * 3)


def get(train):
    train.get("rows")


CALLS = {"call": (call, 1), "train": (train_three, 3), "get": (get, 0)}


def interrupt_everywhere(train, called, most, stride):
    """Interrupt a series of calls, each at a later place; return the numbers of places and of interrupted calls."""
    number = interrupted = 0
    while True:
        before = train.steps
        is_over, error = interrupt_at(number, called, train)
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
        assert error is None or isinstance(error, KeyboardInterrupt), error
        interrupted += error is not None
        made = check_whole(train, range(before, before + most + 1))
        # The next call raises no interrupt again, and runs one step.
        train(BATCH)
        check_whole(train, [made + 1])
        if is_over:
            return number, interrupted
        number += stride


def set_everywhere(train, stride):
    """Interrupt a series of calls that set values, each at a later place; return the number of places."""
    number, is_over = 0, False
    while not is_over:
        # Set both variables to values that they have together after some step.
        before, made = train._group.state(), train.steps
        after = [before[0] + 4, before[1] + 1]
        has_loaded, error = interrupt_at(number, train._group.load, after, made + 1)
        assert error is None or isinstance(error, KeyboardInterrupt), error
        check_whole(train, [made, made + 1])
        is_over, error = interrupt_at(number, train.set, "rows", train.get("rows"))
        assert error is None or isinstance(error, KeyboardInterrupt), error
        check_whole(train)
        train(BATCH)
        is_over = is_over and has_loaded
        number += stride
    return number


def failing_once(number, is_chosen):
    """Return a replacement of `LinkedFunction.run` that fails once: at node `number`, counted in chosen threads."""
    left, run = number, LinkedFunction.run

    def run_or_fail(linked, index):
        nonlocal left
        if is_chosen():
            left -= 1
            if left == -1:
                raise ArithmeticError("no luck")
        return run(linked, index)

    return run_or_fail
