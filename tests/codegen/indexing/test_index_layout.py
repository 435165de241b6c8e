"""The computed positions of the elements that an index selects equal NumPy's."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from optdb.codegen.indexing.index_layout import find, host_indexes, last_mentions, pattern_of
from tests.codegen.indexing.kinds import kinds_of
from tests.effort import examples

SHAPE = (3, 4, 2)


def elements(layout):
    """Return the positions of the selected elements in memory, as an array of the result's shape."""
    before = layout.pattern.before
    grid = np.array(0)
    for axis, (length, step) in enumerate(zip(layout.lengths, layout.steps, strict=True)):
        if axis == before:
            grid = np.add.outer(grid, layout.offsets())
        grid = np.add.outer(grid, np.arange(length) * step)
    if before == len(layout.lengths):
        grid = np.add.outer(grid, layout.offsets())
    return grid.reshape(layout.result)


@st.composite
def indexed(draw):
    """Return a shape and an index for it, with entries of all kinds."""
    shape = draw(st.lists(st.integers(0, 4), min_size=1, max_size=4))
    common = draw(hnp.array_shapes(min_dims=0, max_dims=2, min_side=1, max_side=3))
    index, left = [], list(shape)
    while left and draw(st.integers(0, 9)):
        kind = draw(st.sampled_from(["numbers", "numbers", "slice", "none", "mask", "one"]))
        if kind == "none":
            index.append(None)
        elif kind == "slice":
            index.append(draw(st.slices(left.pop(0))))
        elif kind == "mask":
            width = draw(st.integers(0, min(2, len(left))))
            index.append(draw(hnp.arrays(bool, tuple(left[:width]))))
            del left[:width]
        else:
            length = left.pop(0)
            own = () if kind == "one" else tuple(draw(st.sampled_from([1, side])) for side in common)
            numbers = st.integers(-length, length - 1) if length else st.just(0)
            index.append(draw(hnp.arrays(draw(st.sampled_from(["int64", "int8"])), own, elements=numbers)))
    return tuple(shape), tuple(index)


@pytest.mark.slow
@given(indexed())
@settings(max_examples=examples(300))
def test_found_as_numpy_finds(case):
    shape, index = case
    numbers = np.arange(np.prod(shape)).reshape(shape)
    strides = [stride // numbers.itemsize for stride in numbers.strides]
    pattern = pattern_of(len(shape), kinds_of(index))
    try:
        want = numbers[index]
    except IndexError:
        with pytest.raises(IndexError):
            find(pattern, shape, strides, index)
        return
    found = find(pattern, shape, strides, index)
    assert found.result == want.shape
    if want.size:
        np.testing.assert_array_equal(elements(found), want)


@given(st.lists(st.integers(0, 6), max_size=20), st.sampled_from([7, 100000]))
def test_the_last_mentions(names, total):
    want = sorted({name: i for i, name in enumerate(names)}.values())
    assert last_mentions(np.array(names, int), total).tolist() == want


WRONG = {
    "too large": (np.array([0, 3]), np.array([0, 0])),
    "too small": (np.array([0, 0]), np.array([0, -5])),
    "not of one shape": (np.array([0, 1, 2]), np.array([0, 1])),
    "too many": (np.array([0]),) * 4,
    "mask of another length": (np.ones(4, bool), slice(None)),
    "mask with too many axes": (slice(None), np.ones((4, 2, 1), bool)),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_not_there_is_an_index_error(name):
    x = np.ones(SHAPE, "float32")
    with pytest.raises(IndexError) as wanted:
        x[WRONG[name]]
    pattern = pattern_of(3, kinds_of(WRONG[name]))
    with pytest.raises(IndexError) as got:
        find(pattern, SHAPE, (8, 2, 1), WRONG[name])
    assert str(got.value).split(" for")[0] == str(wanted.value).split(" for")[0]


@pytest.mark.parametrize("rows, wrong", [([0, 3], 3), ([-4, 1], -4)])
def test_rows_out_of_the_array_are_refused(rows, wrong):
    with pytest.raises(IndexError, match=f"op: index {wrong} is out of bounds for axis 0 with size 3"):
        host_indexes(np.array(rows), 3, "op")
    with pytest.raises(IndexError, match="index 200 is out"):
        host_indexes(np.array([200], "uint8"), 3, "op")
