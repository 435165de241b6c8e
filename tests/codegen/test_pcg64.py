"""The device draws the same uniform random numbers as NumPy's PCG64."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from optdb.codegen.random_numbers import PCG64Numbers, advanced, state_words
from tests.codegen.layouts import compute, context, device_array
from tests.effort import examples

LARGEST = 2**128 - 1


def generator(state: int, increment: int) -> np.random.Generator:
    bits = np.random.PCG64()
    whole = {"state": state, "inc": increment}
    bits.state = {"bit_generator": "PCG64", "state": whole, "has_uint32": 0, "uinteger": 0}
    return np.random.Generator(bits)


def numbers(state: int, increment: int, n: int, dtype: str = "float64", is_open: bool = False) -> np.ndarray:
    operation = PCG64Numbers(context(), dtype, is_open)
    (result,) = compute(operation, device_array(state_words(state, increment)), n)
    return result


states = st.one_of(st.sampled_from([0, 1, LARGEST]), st.integers(0, LARGEST))


@settings(max_examples=examples(60))
@given(states, states, st.one_of(st.integers(0, 70), st.integers(2000, 9000)), st.sampled_from(["float64", "float32"]))
def test_numbers_are_those_of_numpy(state, increment, n, dtype):
    for kind in ("cpu", "gpu"):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(context(), "profile", context().profile.as_kind(kind))
            computed = numbers(state, increment | 1, n, dtype)
        assert computed.dtype == dtype
        np.testing.assert_array_equal(computed, generator(state, increment | 1).random(n).astype(dtype))


@settings(max_examples=examples(60))
@given(states, states, st.one_of(st.integers(0, 70), st.integers(0, 2**70)))
def test_states_are_those_of_numpy(state, increment, steps):
    expected = generator(state, increment | 1).bit_generator.advance(steps).state["state"]
    assert advanced(state, increment | 1, steps) == expected["state"]


def test_a_second_round_of_items_continues_the_stream(each_device_kind):
    n = 200_003
    np.testing.assert_array_equal(numbers(5, 7, n), generator(5, 7).random(n))


@pytest.mark.parametrize("dtype, bits", [("float64", 53), ("float32", 24)])
def test_open_numbers_are_neither_0_nor_1(each_device_kind, dtype, bits):
    words = generator(3, 9).bit_generator.random_raw(5000) >> np.uint64(64 - bits)
    computed = numbers(3, 9, 5000, dtype, is_open=True)
    np.testing.assert_array_equal(computed, ((words | np.uint64(1)) * 2.0**-bits).astype(dtype))
    assert computed.min() > 0
    assert computed.max() < 1
