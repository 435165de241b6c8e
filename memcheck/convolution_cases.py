"""Cases of convolutions: rows of whole and partial vectors, few filters and many, unshared filters."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from memcheck.case import Case, Given, array, floats
from optdb.opencl.ops.conv import OpenCLConv, OpenCLConvGradInputs, OpenCLConvGradWeights


def _three(x: Given, w: Given, t: Given, **parameters: Any) -> Iterator[Case]:
    """Return the convolution of images with filters, and its gradients, from images, filters and a result."""
    dims = len(x.shape) - 2
    yield Case(OpenCLConv(dims, **parameters), x, w)
    yield Case(OpenCLConvGradWeights(dims, **parameters), x, t, np.array(w.shape[-dims:]))
    yield Case(OpenCLConvGradInputs(dims, **parameters), w, t, np.array(x.shape[2:]))


def _plain(*shape: int) -> Given:
    return array("float32", *shape)


CONVOLUTION_CASES = [
    *_three(floats(3, 2, 5, 7), floats(9, 2, 3, 2), floats(3, 9, 3, 3), subsample=(2, 3), border_mode=(1, 1)),
    *_three(_plain(1, 2, 3, 35), _plain(5, 2, 3, 3), _plain(1, 5, 3, 35), border_mode="half"),
    *_three(_plain(1, 1, 3, 67), _plain(5, 1, 1, 3), _plain(1, 5, 3, 34), border_mode="half", subsample=(1, 2)),
    *_three(_plain(3, 4, 5, 19), _plain(4, 1, 1, 2), _plain(3, 4, 5, 18), num_groups=4),
    *_three(_plain(2, 3, 1, 1), _plain(5, 3, 1, 1), _plain(2, 5, 1, 1)),
    *_three(_plain(2, 5, 3, 7), _plain(17, 5, 1, 1), _plain(2, 17, 3, 7)),
    # Tiles of a GPU for more filters or channels, and sums with so many terms that they are split into parts.
    *(
        case
        for rows in (20, 64, 128)
        for case in _three(floats(1, 4, 1, 2), floats(rows, 4, 1, 1), floats(1, rows, 1, 2))
    ),
    *(
        case
        for rows in (20, 64, 128)
        for case in _three(floats(1, rows, 1, 2), floats(4, rows, 1, 1), floats(1, 4, 1, 2))
    ),
    *(
        Case(OpenCLConvGradWeights(2), _plain(1, 128, 1, 1), _plain(1, features, 1, 1), np.array((1, 1)))
        for features in (20, 128)
    ),
    *_three(_plain(1, 1024, 1, 1), _plain(4, 1024, 1, 1), _plain(1, 4, 1, 1)),
    *_three(_plain(1, 4, 1, 1), _plain(1024, 4, 1, 1), _plain(1, 1024, 1, 1)),
    *_three(_plain(2, 3, 4, 3, 5), _plain(5, 3, 2, 2, 3), _plain(2, 5, 5, 4, 7), border_mode="full"),
    *_three(
        _plain(2, 4, 3, 5), _plain(6, 3, 2, 2, 1, 3), _plain(2, 6, 3, 2), unshared=True, num_groups=2, subsample=(1, 2)
    ),
]
