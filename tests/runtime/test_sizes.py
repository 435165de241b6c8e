"""Sizes are recomputed for arrays of other lengths, and guards decide whether the recomputed sizes are valid."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from optdb.runtime.exported.rules import Call, GuardSet
from optdb.runtime.expressions import AxisLength, Guard, Ref
from optdb.runtime.sizes import (
    ShapeEnv,
    SymIntVector,
    as_int,
    broadcast_shapes,
    exact_quotient,
    example_value,
    is_at_most,
    is_same,
    largest,
    lengths_of,
    operand,
    part_of,
    power_of_two,
    smallest,
    starts,
)

small = st.integers(0, 40)


def symbols(*values):
    """Return an environment and symbolic sizes with the given values, which are the lengths of argument 0."""
    rules = ShapeEnv()
    return rules, [rules.symbol(value, AxisLength(0, axis)) for axis, value in enumerate(values)]


def again(rules, result, *values):
    """Recompute a result for other lengths; return None if a guard does not hold for these lengths."""
    there = GuardSet(rules.entries, list(rules.guards), ["x"])
    found = there.values(Call([np.empty(values, np.uint8)], 2))
    if there.broken(found) is not None:
        return None
    return tuple(found.value(operand(x)) for x in result)


def compute(a, b):
    """Compute integers from two lengths, with the operations that ops use."""
    pieces = -(-a // 7)
    total = a * b * 4
    chunk = largest(-(-total // 16), 5)
    start, count, step = part_of(a, slice(b, -2))
    back = part_of(a, slice(None, None, -3))
    rest = total // 4 % (b + 1)
    return (pieces, chunk, start, count, step, *back, rest, smallest(a, 9), abs(a - b), *starts(b + 1, 50))


@given(small, small, small, small)
def test_what_is_worked_out_again_is_what_would_have_been_computed(a, b, c, d):
    rules, (x, y) = symbols(a, b)
    result = compute(x, y)
    assert tuple(map(example_value, result)) == compute(a, b)
    assert again(rules, result, a, b) == compute(a, b)
    assert again(rules, result, c, d) in (None, compute(c, d))


@given(st.integers(1, 40), st.integers(1, 40))
def test_arithmetic_alone_holds_for_all(c, d):
    rules, (x, y) = symbols(6, 4)
    result = (x * y + 3, -(-(x * 4) // 8), largest(x, y), (x * 12) // 4, (x * 12) % 4, x - x, x * 0, (x + 1) - 1)
    assert not rules.guards
    assert again(rules, result, c, d) == (c * d + 3, -(-c // 2), max(c, d), c * 3, 0, 0, 0, c)


def test_equal_lengths_are_found_to_be_equal_without_a_guard():
    rules, (x, y) = symbols(6, 4)
    assert (x * y) * 4 == (y * x) * 4
    assert (x * 8) // 2 == x * 4
    assert hash(x * y) == hash(y * x)
    assert not rules.guards


def test_a_comparison_is_a_guard():
    rules, (x, y) = symbols(6, 4)
    assert not x < y
    assert list(rules.guards) == [Guard("<=", Ref(1), Ref(0))]
    assert again(rules, (x,), 3, 3) == (3,)
    assert again(rules, (x,), 3, 4) is None


@pytest.mark.parametrize("escape", [int, float, range, np.asarray, lambda x: [0] * 10 and [1, 2, 3, 4, 5, 6, 7][x]])
def test_who_takes_a_plain_number_takes_that_of_the_example(escape):
    rules, (x, y) = symbols(6, 4)
    escape(x)
    assert again(rules, (y,), 6, 9) == (9,)
    assert again(rules, (y,), 7, 9) is None


def test_what_a_guard_leaves_but_one_number_is_that_number():
    _, (x, _) = symbols(6, 4)
    assert x == 6
    assert as_int(x * 1) == 6
    assert type(x * 2) is int


def test_lengths_of_vectors():
    _, (x, y) = symbols(6, 4)
    assert [example_value(n) for n in lengths_of(SymIntVector([x, 3, y]))] == [6, 3, 4]
    assert lengths_of(np.array([2, 3])) == [2, 3]
    assert lengths_of(5) == [5]
    assert lengths_of(x) == [x]


def test_dividing_by_nothing():
    _, (x, y) = symbols(6, 0)
    with pytest.raises(ZeroDivisionError):
        x // y
    with pytest.raises(ValueError, match="zero"):
        part_of(x, slice(None, None, 0))


@given(st.integers(0, 12), *[st.none() | st.integers(-15, 15)] * 2, st.none() | st.integers(-4, 4).filter(bool))
def test_parts_are_those_of_slices(length, start, stop, step):
    _, (n,) = symbols(length)
    begin, count, by = map(example_value, part_of(n, slice(start, stop, step)))
    wanted = range(length)[slice(start, stop, step)]
    assert (count, by) == (len(wanted), wanted.step)
    assert not count or begin == wanted.start
    assert part_of(length, slice(start, stop, step))[1:] == (len(wanted), wanted.step)


def test_choices_that_record_no_guard():
    rules, (a, b) = symbols(6, 6)
    assert is_same(a, a) and is_same(a * 2 - a * 2, 0) and is_same(4, 4)
    assert not is_same(a, b) and not is_same(a, 6)
    assert is_at_most(6, 6) and not is_at_most(a, 100)
    assert exact_quotient(a, a) == 1 and exact_quotient(12, 4) == 3
    assert exact_quotient(12, 5) is exact_quotient(12, 0) is exact_quotient(a, 3) is exact_quotient(a * b, b) is None
    assert is_same(exact_quotient(a * 3, 3), a)
    assert not rules.guards
    assert a == 6
    assert is_same(a, 6) and is_at_most(a, 6)


def test_shapes_that_broadcast():
    rules, (a, b) = symbols(6, 6)
    shape = broadcast_shapes((1, a), (a,), (3, 1))
    assert shape[0] == 3 and is_same(shape[1], a) and not rules.guards
    broadcast_shapes((a,), (b,))
    assert list(rules.guards) == [Guard("==", Ref(0), Ref(1))]
    assert broadcast_shapes((2, 1), (1, 0), ()) == (2, 0) and broadcast_shapes() == ()
    with pytest.raises(ValueError, match=r"shapes \(2,\), \(3,\) do not broadcast"):
        broadcast_shapes((2,), (3,))


@given(least=st.integers(0, 300), most=st.integers(1, 200))
def test_powers_of_two(least, most):
    rules, (size,) = symbols(least)
    expected = min(1 << max(least - 1, 0).bit_length(), most)
    assert power_of_two(least, most) == power_of_two(size, most) == expected
    assert again(rules, [size], least) == (least,)
