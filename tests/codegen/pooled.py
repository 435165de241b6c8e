"""Computes pooling in NumPy, written directly from its definition, for tests."""

from __future__ import annotations

import itertools

import numpy as np

MODES = ["max", "sum", "average_inc_pad", "average_exc_pad"]
# Each case has leading lengths, pooled lengths, ws, stride, pad and ignore_border
CASES = {
    "2d": ((2, 3), (5, 6), (2, 3), (2, 3), (0, 0), True),
    "2d pairs": ((2,), (5, 7), (2, 2), (2, 2), (0, 0), True),
    "2d cut short": ((3,), (5, 7), (2, 3), (2, 3), (0, 0), False),
    "2d overlap": ((1, 2), (5, 6), (3, 2), (1, 1), (0, 0), True),
    "2d overlap, cut short": ((2,), (6, 5), (3, 4), (2, 2), (0, 0), False),
    "2d gaps": ((2,), (7, 8), (2, 1), (3, 4), (0, 0), True),
    "2d padded": ((2,), (4, 5), (3, 2), (1, 2), (2, 1), True),
    "2d alone": ((), (4, 4), (2, 2), (2, 2), (0, 0), True),
    "2d too large": ((2,), (3, 4), (4, 2), (4, 2), (0, 0), True),
    "2d none": ((0, 2), (4, 4), (2, 2), (2, 2), (0, 0), True),
    "1d": ((3,), (9,), (3,), (2,), (1,), True),
    "3d": ((2,), (4, 3, 5), (2, 2, 3), (2, 1, 2), (1, 0, 1), True),
    "3d cut short": ((2, 1), (4, 3, 5), (2, 2, 3), (2, 2, 3), (0, 0, 0), False),
}


def windows(case):
    """Return the number of windows along each axis, and the part of the array in each window."""
    _, lengths, ws, stride, pad, whole = CASES[case]
    counts = []
    for n, w, s, p in zip(lengths, ws, stride, pad):
        starts = range(0, max(n + 2 * p - w + 1, 0) if whole else n, s)
        covering = [i for i, start in enumerate(starts) if start + w >= n]
        counts.append(len(starts) if whole or w <= s else covering[0] + 1)
    parts = {}
    for at in itertools.product(*map(range, counts)):
        ends = [(i * s - p, min(i * s - p + w, n)) for i, s, p, w, n in zip(at, stride, pad, ws, lengths)]
        parts[at] = (..., *[slice(max(start, 0), end) for start, end in ends])
    return tuple(counts), parts


def sample(case, dtype):
    """Return an array with many equal elements."""
    lead, lengths, *_ = CASES[case]
    return np.random.default_rng(len(case)).integers(-3, 4, lead + lengths).astype(dtype)


def numbers(case):
    return [np.array(values) for values in CASES[case][2:5]]


def pooled(case, x, mode):
    counts, parts = windows(case)
    lead, lengths, ws, _, _, whole = CASES[case]
    axes = tuple(range(-len(lengths), 0))
    z = np.zeros(lead + counts, x.dtype)
    for at, part in parts.items():
        seen = x[part]
        if mode == "max":
            z[(..., *at)] = seen.max(axes)
            continue
        by = 1
        if mode != "sum":
            by = np.prod(ws) if mode == "average_inc_pad" and whole else np.prod(seen.shape[-len(lengths) :])
        # Sums of integers wrap, as in the host's C code.
        total = seen.sum(axes, dtype="float64" if x.dtype.kind == "f" else x.dtype)
        z[(..., *at)] = total / by if x.dtype.kind == "f" else np.fix(total / by)
    return z
