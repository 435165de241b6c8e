"""Arguments of any layout and dtype give correct results, whether or not they can be used in place."""

from __future__ import annotations

import numpy as np
import pytest
import theano
import theano.tensor as tt
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from optdb.runtime import host_buffers
from tests.effort import examples
from tests.opencl.simulator.lent import N, called, doubled, numbers
from tests.opencl.simulator.made import simulated

pytestmark = pytest.mark.usefixtures("shares_memory")


def read_only():
    x = numbers()
    x.flags.writeable = False
    return x


def from_bytes():
    return np.frombuffer(numbers().tobytes(), "float32")


LAYOUTS = {
    "read-only": (read_only, True),
    "of bytes": (from_bytes, True),
    "backwards": (lambda: numbers()[::-1], False),
    "with gaps": (lambda: numbers(shape=2 * N)[::2], False),
    "a part": (lambda: numbers(shape=N + 3)[3:], True),
    "of the other byte order": (lambda: numbers().astype(">f4"), None),
    "of another dtype": (lambda: (numbers() * 100).astype("int16"), None),
    "repeated": (lambda: np.broadcast_to(np.float32(3), (N,)), False),
    "a list": (lambda: numbers().tolist(), None),
    "empty": (lambda: numbers()[:0], False),
}


@pytest.mark.parametrize("name", LAYOUTS)
def test_arguments_of_any_kind(name, moved):
    make, lent = LAYOUTS[name]
    x = tt.fvector("x")
    f, sim = simulated([theano.In(x, allow_downcast=True)], [x * 2 + 1, x.sum()])
    called(sim, numbers())
    for _ in range(3):
        value = make()
        moved.take()
        got, wanted = sim(value), f(value)
        np.testing.assert_allclose(got[0], wanted[0], rtol=1e-6)
        np.testing.assert_allclose(got[1], wanted[1], rtol=1e-3, atol=1e-3)
    if lent is not None and len(got[0]):
        assert (moved.take()[0] == 0) == lent
    np.testing.assert_array_equal(sim(numbers())[0], f(numbers())[0])


def test_a_file_in_memory(tmp_path, moved):
    path = tmp_path / "numbers"
    numbers().tofile(path)
    f, sim = doubled()
    called(sim, numbers())
    for mode in ("r", "r+", "c"):
        moved.take()
        value = np.memmap(path, "float32", mode)
        np.testing.assert_array_equal(sim(value), f(numbers()))
        assert moved.take() == (0, 0)
        del value
    assert path.read_bytes() == numbers().tobytes()


@pytest.mark.parametrize(
    ("dtype", "shape"),
    [
        *[("float16", (2 * N,)), ("float32", (N // 8, 2, 2, 2)), ("float64", (3, N)), ("complex64", (N, 1))],
        *[("int32", (N, 2)), ("uint8", (4 * N,)), ("int64", (N,)), ("bool", (2, 2, N))],
    ],
)
def test_all_dtypes(dtype, shape, moved):
    ndim = len(shape)
    x = tt.TensorType(dtype, (False,) * ndim)("x")
    f, sim = simulated([x], tt.switch(tt.neq(x, 0), x, tt.ones_like(x)))
    value = np.random.RandomState(3).randint(0, 2, shape).astype(dtype)
    called(sim, value)
    moved.take()
    result = sim(value)
    np.testing.assert_array_equal(result, f(value))
    assert result.dtype == value.dtype
    if value.dtype.kind in "fc":
        assert moved.take() == (0, 0)


@st.composite
def layouts(draw):
    """Draw the properties of an argument that is a view of a 3-d array, such as its length and its order of axes."""
    length = draw(st.sampled_from([0, 1, 7, 40]))
    steps = draw(st.tuples(*[st.sampled_from([1, 1, 2, -1])] * 3))
    order = draw(st.permutations(range(3)))
    return length, steps, order, draw(st.integers(0, 3)), draw(st.booleans())


@pytest.mark.slow
@settings(deadline=None, max_examples=examples(60), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(layouts(), min_size=1, max_size=4))
def test_any_layouts_in_turn(monkeypatch, kept_sim, given):
    monkeypatch.setattr(host_buffers, "MIN_ZERO_COPY_BYTES", 256)
    f, sim = kept_sim
    for seed, (length, steps, order, start, keep) in enumerate(given):
        base = numbers(seed, shape=(length + 3, 12, 9))[start:]
        view = base[tuple(slice(None, None, step) for step in steps)].transpose(order)
        argument = np.ascontiguousarray(view) if keep else view
        before = argument.copy()
        got = sim(argument, np.float32(seed))
        np.testing.assert_array_equal(argument, before)
        argument[...] = 0
        for one, other in zip(got, f(before, np.float32(seed)), strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)


@pytest.fixture(scope="module")
def kept_sim():
    x, a = tt.ftensor3("x"), tt.fscalar("a")
    outputs = [x * a + 1, theano.Out(tt.tanh(x).dimshuffle(2, 0, 1), borrow=True), x[::-1].sum(axis=0), x.T]
    return simulated([x, a], outputs)
