"""Image patches on the device equal NumPy's."""

from __future__ import annotations

import numpy as np
import pytest

from optdb.codegen.operation import ArraySpec
from optdb.codegen.pooling import ImagePatches
from tests.codegen.layouts import compute, context, device_array

pytestmark = pytest.mark.optimized

MODES = ["valid", "half", "full", "ignore_borders", "wrap_centered"]
# Each case has shapes of images and patches, and strides, which are valid for some modes.
CASES = [
    ((2, 3, 6, 8), (3, 2), (3, 2)),
    ((1, 2, 7, 9), (3, 3), (1, 1)),
    ((2, 1, 5, 7), (3, 5), (2, 2)),
    ((1, 1, 6, 6), (5, 3), (2, 3)),
    ((2, 2, 5, 5), (1, 3), (3, 4)),
    ((0, 2, 4, 4), (2, 2), (2, 2)),
    ((1, 1, 2, 4), (3, 3), (2, 1)),
]


def pads_of(mode, sizes):
    """Return the padding at each end of an axis."""
    of_size = {"half": lambda size: size // 2, "wrap_centered": lambda size: size // 2, "full": lambda size: size - 1}
    return [of_size.get(mode, lambda size: 0)(size) for size in sizes]


def fits(mode, lengths, sizes, steps):
    """Tell whether patches of these sizes are valid in a mode."""
    if mode == "ignore_borders":
        return True
    if any(length < size for length, size in zip(lengths, sizes)):
        return False
    if mode == "wrap_centered":
        return all(size % 2 for size in sizes)
    rooms = [length + 2 * pad - size for length, pad, size in zip(lengths, pads_of(mode, sizes), sizes)]
    return not any(room % step for room, step in zip(rooms, steps))


def patches(a, mode, sizes, steps):
    pads = [(0, 0), (0, 0), *[(pad, pad) for pad in pads_of(mode, sizes)]]
    if any(length < size for length, size in zip(a.shape[2:], sizes)):
        return np.zeros((0, np.prod(sizes)), a.dtype)
    padded = np.pad(a, pads, mode="wrap" if mode == "wrap_centered" and a.size else "constant")
    seen = np.lib.stride_tricks.sliding_window_view(padded, sizes, (2, 3))[:, :, :: steps[0], :: steps[1]]
    return seen.reshape(-1, np.prod(sizes))


@pytest.mark.pairwise
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("dtype", ["float32", "int8", "complex128"])
def test_all_modes(mode, dtype, each_device_kind):
    operation, compared = ImagePatches(context(), ArraySpec(dtype, (False,) * 4), mode), 0
    for lengths, *numbers in CASES:
        a = (np.arange(np.prod(lengths)) % 100 + 1).reshape(lengths).astype(dtype)
        vectors = list(map(np.array, numbers))
        if not fits(mode, lengths[2:], *numbers):
            with pytest.raises(TypeError, match="ImagePatches"):
                compute(operation, device_array(a), *vectors)
            continue
        for steps in [1] * 4, [2, -1, -3, 1]:
            (got,) = compute(operation, device_array(a, steps), *vectors)
            np.testing.assert_array_equal(got, patches(a, mode, *numbers))
            assert got.dtype == dtype
        compared += 1
    assert compared > 1


@pytest.mark.parametrize(
    "numbers, error, reason",
    [
        (([2], [1, 1]), TypeError, r"neib_shape has to contain 2 elements, not \[2\]"),
        (([2, 2], [0, 1]), ValueError, r"neib_step has values <= 0: \[0, 1\]"),
        (([3, 3], [2, 1]), TypeError, r"neib_shape\[0\]=3, neib_step\[0\]=2 and ten4.shape\[2\]=4 not consistent"),
    ],
)
def test_what_is_no_patch(numbers, error, reason):
    a = np.zeros((1, 1, 4, 4), "float32")
    with pytest.raises(error, match=reason):
        compute(ImagePatches(context(), ArraySpec.of(a)), device_array(a), *map(np.array, numbers))
