"""Values that are live at the same time never share memory; other values may share memory."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from optdb.runtime.buffer_assignment import ALIGNMENT, pack

spans = st.lists(
    st.tuples(st.integers(0, 30), st.integers(0, 10), st.integers(0, 5000)).map(lambda s: (s[0], s[0] + s[1], s[2])),
    max_size=40,
)


def rounded(nbytes):
    return -(-max(nbytes, 1) // ALIGNMENT) * ALIGNMENT


@given(spans)
def test_what_lives_together_lies_apart(spans):
    places, totals = pack(spans)
    assert len(totals) == (len(spans) > 0)
    offsets, total = [offset for _, offset in places], sum(totals)
    for i, (first, last, nbytes) in enumerate(spans):
        assert offsets[i] % ALIGNMENT == 0
        assert offsets[i] + nbytes <= total
        for j in range(i):
            other_first, other_last, other_nbytes = spans[j]
            if first <= other_last and other_first <= last:
                assert offsets[i] + nbytes <= offsets[j] or offsets[j] + other_nbytes <= offsets[i]


@given(spans)
def test_no_more_than_apart_no_less_than_needed(spans):
    total = sum(pack(spans)[1])
    assert total <= sum(rounded(nbytes) for _, _, nbytes in spans)
    steps = range(50)
    assert total >= max(sum(rounded(n) for first, last, n in spans if first <= step <= last) for step in steps)


def test_a_chain_needs_two_places():
    chain = [(step, step + 1, 1000) for step in range(100)]
    assert pack(chain)[1] == [2 * rounded(1000)]


def test_gaps_grow_together():
    small = [(0, 0, 128), (0, 1, 128), (0, 0, 128), (0, 1, 128)]
    assert pack([*small, (2, 2, 512)])[1] == [512]


@given(spans, st.integers(1, 20).map(lambda n: n * 1024))
def test_pieces_are_no_larger_than_allowed_and_keep_values_apart(spans, limit):
    places, totals = pack(spans, limit)
    largest = max((rounded(nbytes) for _, _, nbytes in spans), default=0)
    assert all(total <= max(limit, largest) for total in totals)
    for i, (first, last, nbytes) in enumerate(spans):
        piece, offset = places[i]
        assert offset + nbytes <= totals[piece]
        for j in range(i):
            other_first, other_last, other_nbytes = spans[j]
            if places[j][0] == piece and first <= other_last and other_first <= last:
                assert offset + nbytes <= places[j][1] or places[j][1] + other_nbytes <= offset
