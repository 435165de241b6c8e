"""A next value overwrites the current value if no later node reads the current value; errors change no values."""

from __future__ import annotations

import numpy as np
import pyopencl.array as cl_array
import pytest
import theano
import theano.tensor as tt
from theano.ifelse import ifelse

import optdb  # noqa: F401  comes before theano
from optdb.opencl import get_context
from optdb.runtime import arrays
from tests.opencl.linking.test_stopped_calls import Refuses

pytestmark = [pytest.mark.optimized, pytest.mark.usefixtures("default")]

MODE = theano.compile.get_default_mode().including("opencl")
HOST = theano.Mode("py", "fast_run")
ROWS, COLUMNS = 3, 4


def numbers(seed, *shape):
    return np.random.RandomState(seed).uniform(0.5, 2, shape).astype("float32")


class Case:
    """A function on the device and on the host; `make` maps states, data and a number to updates and outputs."""

    def __init__(self, make, count=2, transposed=False):
        values = [numbers(k, ROWS, COLUMNS) for k in range(count)]
        data = [numbers(10 + k, ROWS, COLUMNS) for k in range(2)]
        self.states, self.hosts = ([theano.shared(v, target=t) for v in values] for t in ("dev0", "cpu"))
        if transposed:
            self.states[0].set_value(self.states[0].get_value(borrow=True, return_internal_type=True).T.copy().T)
        self.f = self._function(make, self.states, [theano.shared(v, target="dev0") for v in data], MODE)
        self.wanted = self._function(make, self.hosts, [theano.shared(v, target="cpu") for v in data], HOST)

    @staticmethod
    def _function(make, states, data, mode):
        i = tt.iscalar("i")
        updates, outputs = make(*states, *data, tt.cast(i, "float32"))
        outputs = [out.transfer("cpu") for out in outputs]
        return theano.function([i], outputs, updates=updates, mode=mode, on_unused_input="ignore")

    def check(self, calls=6, argument=1):
        for _ in range(calls):
            for found, wanted in zip(self.f(argument), self.wanted(argument), strict=True):
                np.testing.assert_allclose(found, wanted, rtol=1e-5)
            for state, host in zip(self.states, self.hosts, strict=True):
                np.testing.assert_allclose(np.array(state.get_value()), host.get_value(), rtol=1e-5)

    @property
    def plan(self):
        return self.f.fn.plans[-1]

    @property
    def copies(self):
        """Return how many bytes of next values the plan copies at the end of a call."""
        entry = list(self.f.fn._cache.values())[-1]
        return sum(command.nbytes for command in entry.plan.commit._commands)


STATE_BYTES = 4 * ROWS * COLUMNS

IN_PLACE = {
    "elementwise": lambda a, b, x, y, i: ([(a, tt.exp(x) * y)], []),
    "a product": lambda a, b, x, y, i: ([(a, tt.dot(tt.dot(x, y.T), x))], []),
    "a sum of products that fills twice": lambda a, b, x, y, i: (
        [(a, tt.dot(tt.dot(x, y.T), x) + tt.dot(x, x.T.dot(y)))],
        [],
    ),
    "read before": lambda a, b, x, y, i: ([(a, tt.dot(a.dot(x.T), y).dot(a.T).dot(x) / 99)], [a.sum()]),
    "two of one value": lambda a, b, x, y, i: ([(a, tt.exp(x)), (b, tt.exp(x))], []),
    "both": lambda a, b, x, y, i: ([(a, tt.exp(x)), (b, tt.tanh(y))], [(a * b).sum()]),
}
COPIED = {
    "a number of the host": lambda a, b, x, y, i: ([(a, tt.exp(x) * i)], []),
    "its own present value": lambda a, b, x, y, i: ([(a, tt.dot(x, x.T).dot(a) / 9)], []),
    "the present value later": lambda a, b, x, y, i: ([(a, tt.exp(x))], [tt.dot(tt.exp(x).T, a)]),
    "two that read each other": lambda a, b, x, y, i: ([(a, x.dot(x.T).dot(b)), (b, y.dot(y.T).dot(a))], []),
    "a result": lambda a, b, x, y, i: ([(a, tt.exp(x) * y)], [tt.exp(x) * y]),
    "a part of another value": lambda a, b, x, y, i: ([(a, tt.exp(tt.concatenate([x, y]))[1 : 1 + ROWS])], []),
}
#: In these cases, the order of the nodes decides whether a next value is computed in place.
EITHER = {
    "one from the other": lambda a, b, x, y, i: ([(a, tt.exp(x) - y), (b, (a[::-1] + x) / 2)], []),
    "a loop": lambda a, b, x, y, i: (
        [(a, theano.scan(lambda s: s * x + y, outputs_info=[tt.unbroadcast(x)], n_steps=3)[0][-1])],
        [],
    ),
}


@pytest.mark.parametrize("make", IN_PLACE.values(), ids=IN_PLACE)
def test_it_is_computed_in_place(make):
    case = Case(make)
    case.check()
    assert case.copies == 0
    assert case.f.fn.call_memory().buffers == case.plan.buffers.nbytes


@pytest.mark.parametrize("make", COPIED.values(), ids=COPIED)
def test_it_is_copied(make):
    case = Case(make)
    case.check()
    assert case.copies >= STATE_BYTES


@pytest.mark.parametrize("make", EITHER.values(), ids=EITHER)
def test_the_values_are_right_either_way(make):
    Case(make).check()


def test_a_present_value_in_another_order_takes_a_copy():
    case = Case(IN_PLACE["elementwise"], transposed=True)
    case.check()


def test_the_present_value_of_one_is_the_next_of_another():
    case = Case(lambda a, b, x, y, i: ([(a, tt.exp(x) + i), (b, a)], [b.sum()]))
    for argument in (1, 2, 2, 3):
        case.check(2, argument)


def test_what_lies_in_the_same_buffer_is_read_as_it_was():
    """A user's array can be in a sub-buffer with its own handle, so that comparing handles does not show aliases."""
    n = 1024
    whole = arrays.from_host(get_context("dev0"), np.ones(4 * n, "float32"))
    part = cl_array.Array(whole.queue, (n,), "float32", data=whole.base_data.get_sub_region(4 * n, 4 * n))
    x = theano.shared(numbers(0, n) - 1, target="dev0")
    a, b, c = (theano.shared(np.zeros(size, "float32"), target="dev0") for size in (n, 4 * n, 4 * n))
    a.set_value(part, borrow=True)
    b.set_value(whole, borrow=True)
    following = tt.exp(x)
    updates = [(a, following), (c, tt.tanh(b) * following.sum()), (x, x / 2)]
    f = theano.function([], [], updates=updates, mode=MODE)
    values, exponents = np.ones(4 * n, "float32"), x.get_value()
    for _ in range(5):
        f()
        wanted = np.exp(exponents)
        np.testing.assert_allclose(np.array(c.get_value()), np.tanh(values) * wanted.sum(), rtol=1e-4)
        values[n : 2 * n], exponents = wanted, exponents / 2
        np.testing.assert_allclose(np.array(a.get_value()), wanted, rtol=1e-5)


def test_a_new_value_between_calls():
    case = Case(IN_PLACE["elementwise"])
    for seed in range(3):
        case.check(4)
        for state in (case.states[0], case.hosts[0]):
            state.set_value(numbers(seed, ROWS, COLUMNS))
    case.check()


@pytest.mark.parametrize("where", ["early", "late"])
def test_a_call_that_raises_changes_nothing(where):
    """A host op raises, before or after the next value is computed; it waits for a value from the device."""

    def make(a, b, x, y, i):
        total = (x.sum() if where == "early" else (tt.exp(x) * y).sum()) * i
        checked = Refuses()(-total.transfer("cpu"))
        next_ = tt.exp(x) * y
        return [(a, next_), (b, next_[::-1] * checked if where == "early" else tt.dot(x, y.T).dot(y) * checked)], []

    case = Case(make)
    case.check(3)
    for argument in (-1, 1, -1, -1, 1, 1):
        if argument > 0:
            case.check(1)
            continue
        before = [np.array(state.get_value()) for state in case.states]
        with pytest.raises(ValueError, match="a large number"):
            case.f(argument)
        for state, value in zip(case.states, before, strict=True):
            np.testing.assert_array_equal(np.array(state.get_value()), value)


def test_branches_that_start_anew_find_the_present_values():
    def make(a, b, x, y, i):
        condition = tt.gt((x.sum() * i).transfer("cpu"), 0)
        next_ = tt.exp(x) * y
        return [(a, next_), (b, ifelse(condition, next_[::-1] + a, b - a))], []

    case = Case(make)
    for argument in (1, 1, 1, -1, -1, -1, 1, -1, 1, 1, -1):
        case.check(1, argument)


def test_launches_stay_merged():
    """All commands of the call are in one segment, because the part that commits begins where this segment begins."""
    case = Case(lambda a, b, x, y, i: ([(a, tt.exp(x)), (b, tt.dot(b, tt.dot(x.T, y)) / 9)], []))
    case.check()
    assert [len(half) for half in case.plan._halves] == [0, 1]
