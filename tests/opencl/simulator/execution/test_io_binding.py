"""Address ranges agree with NumPy about which arrays may share memory."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from optdb.opencl.simulator.execution.io_binding import AddressRanges
from tests.effort import examples


@st.composite
def _views(draw):
    """Draw views of one array; some have negative strides, are transposed, are repeated, or have no elements."""
    memory = np.zeros(400, draw(st.sampled_from(["i1", "f4", "c16"])))
    views = []
    for _ in range(draw(st.integers(1, 8))):
        start, length = draw(st.integers(0, 390)), draw(st.integers(0, 10))
        part = memory[start : start + length][:: draw(st.sampled_from([1, 2, -1, -3]))]
        shape = draw(st.sampled_from([part.shape, (2, *part.shape), (*part.shape, 3)]))
        views.append(np.broadcast_to(part if shape[-1:] == part.shape else part[:, None], shape).T)
    return views


@given(_views(), st.integers(0, 8))
@settings(max_examples=examples(400))
def test_as_numpy_compares_pairs(views, count):
    ranges = AddressRanges()
    added, asked = views[:count], views[count:]
    for view in added:
        ranges.add(view)
    for view in asked:
        # Ranges may be merged, but must overlap with the same views as the bounds of the separate arrays.
        assert ranges.overlap(view) == any(np.may_share_memory(view, other) for other in added)
    ranges.clear()
    assert not any(ranges.overlap(view) for view in views)
