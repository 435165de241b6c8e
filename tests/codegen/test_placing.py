"""Elementwise results that are written to slices of an array of zeros agree with NumPy."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from optdb.codegen.elementwise_programs import PlacedElementwise
from optdb.codegen.operation import ArraySpec
from optdb.codegen.scalars.program import Scalar, ScalarProgram
from tests.codegen.layouts import compute, context, device_array, gpu_context, laid_out
from tests.effort import examples

#: The first two results, a sum and a product, are written to slices; the third, a difference, is separate.
DTYPE = "float64"
STEPS = tuple((Scalar(name, DTYPE), (0, 1)) for name in ("Add", "Mul", "Sub"))
PROGRAM = ScalarProgram((DTYPE, DTYPE), STEPS, (2, 3, 4))


def placed(lengths, a, b, axis, places, context=context):
    operation = PlacedElementwise(context(), PROGRAM, [ArraySpec.of(a), ArraySpec.of(b)], axis, places)
    return compute(operation, *map(np.int64, lengths), a, b, outputs=2)


def expected(lengths, a, b, axis, places):
    zeros = np.zeros(lengths, DTYPE)
    for value, (start, stop) in zip((a + b, a * b), places, strict=True):
        zeros[(slice(None),) * axis + (slice(start, stop),)] = value
    return zeros, a - b


@pytest.mark.slow
@given(st.data(), st.integers(0, 2), *[st.integers(0, 3)] * 3, st.sampled_from([context, gpu_context]))
@settings(max_examples=examples(60), deadline=None)
def test_places_are_those_of_numpy(data, axis, before, between, after, context):
    shape = [data.draw(st.integers(0, 4)) for _ in range(3)]
    width = shape[axis] = max(shape[axis], 1)
    pairs = [data.draw(laid_out(DTYPE, tuple(shape), context)) for _ in range(2)]
    places = [(before, before + width), (before + width + between, before + 2 * width + between)]
    lengths = [*shape]
    lengths[axis] = places[1][1] + after
    with np.errstate(all="ignore"):
        want = expected(lengths, *[value for value, _ in pairs], axis, places)
    got = placed(lengths, *[array for _, array in pairs], axis, places, context)
    for one, other in zip(got, want, strict=True):
        np.testing.assert_array_equal(one, other)


def test_a_single_row_broadcasts_to_its_places():
    a, b = np.arange(3.0).reshape(1, 3), np.full((1, 3), 2.0)
    arguments = [(4, 6), (device_array(a), device_array(b)), 1, [(0, 3), (3, 6)]]
    lengths, arrays, axis, places = arguments
    for one, other in zip(placed(lengths, *arrays, axis, places), expected(lengths, a, b, axis, places), strict=True):
        np.testing.assert_array_equal(one, other)


def test_what_does_not_fit_is_refused():
    a = device_array(np.ones((2, 3)))
    with pytest.raises(ValueError, match="cannot broadcast a value of shape"):
        placed((2, 5), a, a, 1, [(0, 3), (3, 6)])
    with pytest.raises(ValueError, match="negative length"):
        placed((-2, 6), a, a, 1, [(0, 3), (3, 6)])
