"""The keys of two values are equal exactly if the values have the same type and content."""

from __future__ import annotations

import functools
import logging

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from optdb.cache.frozen import LARGEST_ARRAY, Freezer, Unhashable

strict, lenient = Freezer(), Freezer(changing=True)

scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-3, 3),
    st.floats(width=32),
    st.sampled_from(["", "a", b"", b"a", 1j, -0.0, np.float32(1), np.float64(1), np.int8(1), np.bool_(True)]),
    st.sampled_from([np.dtype("float32"), "float32", np.dtype(">f4"), float, np.float32, Ellipsis]),
)
values = st.recursive(
    scalars,
    lambda inner: st.one_of(st.tuples(inner, inner), st.tuples(inner), st.builds(slice, inner, inner)),
    max_leaves=6,
)


def same(one, other):
    """Tell whether two values, including the elements of tuples and slices, have the same type and the same `repr`."""
    if type(one) is not type(other):
        return False
    if isinstance(one, tuple):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, slice):
        return same((one.start, one.stop, one.step), (other.start, other.stop, other.step))
    return repr(one) == repr(other)


@given(values, values)
def test_keys_are_equal_for_equal_values(one, other):
    assert (strict(one) == strict(other)) == same(one, other)
    assert (lenient(one) == lenient(other)) == same(one, other)
    if same(one, other):
        assert hash(strict(one)) == hash(strict(other))


@pytest.mark.parametrize("value", [[], {}, set(), bytearray(b"a"), np.zeros(2), ([],), (1, {"a": 1})])
def test_what_can_change_is_no_key(value):
    with pytest.raises(Unhashable, match="which can change"):
        strict(value)
    hash(lenient(value))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ([1], [1.0]),
        ([1], (1,)),
        ({1: 2}, {True: 2}),
        ({1}, frozenset({1})),
        (np.zeros(2), np.zeros(2, "float32")),
        (np.zeros((1, 2)), np.zeros((2, 1))),
        (np.zeros(2), np.array([0.0, -0.0])),
        (float("nan"), None),
        (len, max),
        (lambda: 1, lambda: 2),
        (functools.partial(len), functools.partial(max)),
        (functools.partial(int, base=2), functools.partial(int, base=3)),
    ],
)
def test_different(one, other):
    assert lenient(one) != lenient(other)


@pytest.mark.parametrize(
    "make",
    [
        lambda: float("nan"),
        lambda: np.float32("nan"),
        lambda: {"a": [1, 2], "b": {3}},
        lambda: np.arange(5),
        lambda: functools.partial(np.triu, k=1),
        lambda: lambda x: x + 1,
        lambda: logging.getLogger("theano"),
    ],
)
def test_made_twice(make):
    assert lenient(make()) == lenient(make())
    assert hash(lenient(make())) == hash(lenient(make()))


def test_the_order_of_a_dict_says_nothing():
    assert lenient({"a": 1, "b": 2}) == lenient({"b": 2, "a": 1})


def test_functions_with_something_bound_to_them_are_alike_if_they_are_one():
    def adder(number):
        return lambda x: x + number

    one = adder(1)
    assert lenient(one) == lenient(one)
    assert lenient(one) != lenient(adder(2))
    assert lenient(lambda x=1: x) != lenient(lambda x=2: x)


def test_large_arrays_are_not_copied_into_the_key():
    large = np.zeros(LARGEST_ARRAY)
    assert lenient(large) == lenient(large)
    assert lenient(large) != lenient(large.copy())


def test_objects_without_a_hash():
    class Comparing:
        def __eq__(self, other):
            return True

        __hash__ = None

    with pytest.raises(Unhashable, match="Comparing"):
        strict(Comparing())
    assert lenient(Comparing()) != lenient(Comparing())
