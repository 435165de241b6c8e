"""Sizes of convolutions, and tables that turn convolutions into matrix products, tested without a device."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from optdb.codegen.convolve.geometry import Axis, axes_of, paddings, phases_of
from optdb.codegen.convolve.plan import backward, cover, forward
from tests.codegen.convolved import Reference, convolutions, lengths_of
from tests.effort import examples


def axes_and_lengths(image, taps, parameters):
    numbers = parameters["border_mode"], parameters["subsample"], parameters["filter_dilation"]
    return axes_of(image, taps, *numbers), lengths_of(image, taps, *numbers)


def test_paddings():
    assert paddings("half", [4, 3]) == ((2, 2), (1, 1))
    assert paddings(2, [4, 3]) == ((2, 2), (2, 2))
    assert paddings((1, (0, 2)), [4, 3]) == ((1, 1), (0, 2))
    for wrong in ("same", (1, 2, 3)):
        with pytest.raises(ValueError, match="must be 'valid', 'full', 'half', or a number or a pair"):
            paddings(wrong, [4, 3])


@given(*[st.integers(1, 9)] * 2, *[st.integers(0, 4)] * 2, *[st.integers(1, 4)] * 2)
@settings(max_examples=examples(150))
def test_phases_are_all_pairs_of_an_element_and_a_tap(length, taps, low, high, step, dilation):
    axis = Axis(length, taps, low, high, step, dilation)
    pairs, elements = set(), []
    for phase in phases_of(axis):
        for i in range(phase.count):
            elements.append(phase.first + i * step)
            pairs |= {(elements[-1], tap, phase.origin + i - back) for tap, back in phase.taps}
    assert sorted(elements) == list(range(length))
    wanted = {
        (y, tap, (y + low - tap * dilation) // step)
        for y in range(length)
        for tap in range(taps)
        if (y + low - tap * dilation) % step == 0
    }
    assert pairs == wanted


@given(st.data(), st.sampled_from([1, 4, 16]))
@settings(max_examples=examples(100))
def test_vectors_cover_each_element_once(data, width):
    counts = [data.draw(st.integers(1, 7)) for _ in range(3)]
    origin = [data.draw(st.integers(0, 2)) for _ in range(3)]
    extents = [at + count + data.draw(st.integers(0, 3)) for at, count in zip(origin, counts)]
    steps = [data.draw(st.integers(1, 2)) for _ in range(3)]
    first = [data.draw(st.integers(0, 2)) for _ in range(3)]
    out = [begin + count * step for begin, count, step in zip(first, counts, steps)]
    starts, targets = cover(extents, origin, counts, out, first, steps, width)
    found = np.full(out, -1)
    lanes = starts[:, None] + np.arange(width)
    np.put(found, targets[targets >= 0], lanes[targets >= 0])
    assert (targets >= 0).sum() == np.prod(counts)
    block = tuple(slice(begin, begin + count) for begin, count in zip(origin, counts))
    wanted = np.full(out, -1)
    there = tuple(slice(begin, begin + count * step, step) for begin, count, step in zip(first, counts, steps))
    inside = np.arange(np.prod(extents)).reshape(extents)[block]
    wanted[there] = inside
    np.testing.assert_array_equal(found, wanted)
    if inside.max() - inside.min() + 1 >= width:
        assert starts.max() + width - 1 <= inside.max()


def laid_out(layout, channels):
    """Pack channels: store the pieces of a layout one after the other, with zeros in the gaps."""
    out = np.zeros((len(channels), *layout.pieces, *layout.extents))
    for place in np.ndindex(out.shape[1:]):
        pieces, at = place[:3], place[3:]
        source = [
            index * step + shifts[piece]
            for index, step, shifts, piece in zip(at, layout.steps, layout.shifts, pieces, strict=True)
        ]
        if all(0 <= index < length for index, length in zip(source, layout.lengths)):
            out[(slice(None), *place)] = channels[(slice(None), *source)]
    return out.ravel()


def by_tables(plan, source, matrix, rows, out):
    """Compute a result from a plan's tables; `matrix` has axes for result channels, source channels and taps."""
    channels = source.shape[0]
    packed = laid_out(plan.layout, source.reshape(channels, *plan.layout.lengths))
    result = np.zeros((rows, int(np.prod(out))))
    for product in plan.products:
        offsets = np.arange(channels)[:, None] * plan.layout.channel + product.offsets
        width = product.targets.shape[1]
        for vector, start in enumerate(product.starts):
            lanes = np.flatnonzero(product.targets[vector] >= 0)
            assert product.runs[vector] == -1 or len(lanes) == width
            columns = packed[offsets[:, :, None] + start + lanes]
            found = np.einsum("rct,ctl->rl", matrix[:, :, product.taps], columns)
            result[:, product.targets[vector, lanes]] = found
    return result


@given(convolutions(), st.sampled_from([1, 16]))
@settings(max_examples=examples(60))
def test_tables_give_results_and_gradients(convolution, width):
    image, taps, parameters = convolution
    axes, lengths = axes_and_lengths(*convolution)
    if min(lengths) <= 0:
        return
    rng = np.random.default_rng(0)
    x, w, t = (rng.normal(size=shape) for shape in ((1, 2, *image), (3, 2, *taps), (1, 3, *lengths)))
    reference = Reference(x, w, t, parameters)
    matrix = w.reshape(3, 2, -1)
    got = by_tables(forward(axes, parameters["filter_flip"], width), x[0], matrix, 3, lengths)
    np.testing.assert_allclose(got.reshape(t.shape), reference.forward(), atol=1e-12)
    plan = backward(axes, parameters["filter_flip"], width)
    got = by_tables(plan, t[0], matrix.transpose(1, 0, 2), 2, image)
    np.testing.assert_allclose(got.reshape(x.shape), reference.inputs(), atol=1e-12)
    written = sum((product.targets >= 0).sum() for product in plan.products)
    assert plan.complete == (written == np.prod(image))


def by_readings(readings, source, channel, matrix, rows, out):
    """Compute a result from `readings`; channels have `channel` elements, and taps outside of the image add 0."""
    result = np.zeros((rows, int(np.prod(out))))
    for reading in readings:
        met = (reading.inside[:, None] & reading.bits) != 0
        at = np.where(met, reading.starts[:, None] + reading.offsets, 0)
        assert at.min() >= 0 and at.max() < channel
        columns = np.where(met, source.reshape(-1, channel)[:, at], 0)
        result[:, reading.targets] = np.einsum("rct,clt->rl", matrix[:, :, reading.taps], columns)
    return result


@given(convolutions())
@settings(max_examples=examples(100))
def test_readings_give_results_and_gradients(convolution):
    image, taps, parameters = convolution
    axes, lengths = axes_and_lengths(*convolution)
    if min(lengths) <= 0:
        return
    rng = np.random.default_rng(0)
    x, w, t = (rng.normal(size=shape) for shape in ((1, 2, *image), (3, 2, *taps), (1, 3, *lengths)))
    reference, flip = Reference(x, w, t, parameters), parameters["filter_flip"]
    matrix = w.reshape(3, 2, -1)
    plan = forward(axes, flip, 1)
    got = by_readings(plan.readings, x, np.prod(image), matrix, 3, lengths)
    np.testing.assert_allclose(got.reshape(t.shape), reference.forward(), atol=1e-12)
    # The gradient with respect to filters needs a reading that lists taps and outputs in order.
    assert (plan.readings[0].taps == np.arange(np.prod(taps))).all() and plan.readings[0].in_order
    got = by_readings(backward(axes, flip, 1).readings, t, np.prod(lengths), matrix.transpose(1, 0, 2), 2, image)
    np.testing.assert_allclose(got.reshape(x.shape), reference.inputs(), atol=1e-12)


def test_filters_of_more_taps_than_bits_have_no_readings():
    axes = axes_of((9, 9), (3, 11), "half", (1, 1), (1, 1))
    assert forward(axes, True, 1).readings is None and backward(axes, True, 1).readings is None
    axes = axes_of((9, 9), (4, 8), "half", (1, 1), (1, 1))
    (reading,) = forward(axes, True, 1).readings
    assert len(set(reading.bits)) == 32
    # A gradient with stride 2 has four phases; each phase has so few of the taps that it has a reading.
    axes = axes_of((9, 9), (7, 7), "half", (2, 2), (1, 1))
    assert forward(axes, True, 1).readings is None and len(backward(axes, True, 1).readings) == 4


def test_vectors_have_no_readings():
    axes = axes_of((9, 9), (3, 3), "half", (1, 1), (1, 1))
    assert forward(axes, True, 16).readings is None and backward(axes, True, 16).readings is None


@given(convolutions())
@settings(max_examples=examples(40))
def test_products_of_laid_out_images_read_all_taps(convolution):
    axes, lengths = axes_and_lengths(*convolution)
    if min(lengths) <= 0:
        return
    for plan in (forward(axes, True, 1), backward(axes, True, 1)):
        for product in plan.products:
            assert (product.inside[:, None] & product.bits).all() and (product.targets >= 0).all()
