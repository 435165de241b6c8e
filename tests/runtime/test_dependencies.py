"""Phases and stages of commands keep all dependencies, and are as few as these allow."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from optdb.runtime.dependencies import ByteRange, phases_of, stages_of

spans = st.builds(
    lambda buffer, start, length, is_written: ByteRange(buffer, start, start + length, is_written),
    st.integers(0, 2),
    st.integers(0, 12),
    st.integers(0, 6),
    st.booleans(),
)
plans = st.lists(st.lists(spans, max_size=4), max_size=14)


def depends(later, earlier):
    """Tell whether one command depends on another one, byte by byte."""

    def touched(command, only_written=False):
        ranges = [span for span in command if span.is_written or not only_written]
        return {(span.buffer, byte) for span in ranges for byte in range(span.start, span.stop)}

    return bool(touched(later) & touched(earlier, True) or touched(later, True) & touched(earlier))


@given(plans)
def test_a_phase_comes_right_after_those_that_it_depends_on(commands):
    phases = phases_of(commands)
    for index, command in enumerate(commands):
        before = [phases[number] for number in range(index) if depends(command, commands[number])]
        assert phases[index] == max(before, default=-1) + 1


@given(plans, st.data())
def test_stages_change_kind_only_where_they_must(commands, data):
    kinds = data.draw(st.lists(st.booleans(), min_size=len(commands), max_size=len(commands)))
    stages = stages_of(commands, kinds)
    for index, command in enumerate(commands):
        assert stages[index] % 2 == kinds[index]
        before = [
            stages[number] + (kinds[number] != kinds[index])
            for number in range(index)
            if depends(command, commands[number])
        ]
        assert stages[index] == max(before, default=int(kinds[index]))


def test_what_two_commands_only_read_is_no_dependency():
    read, write = ByteRange(1, 0, 8, False), ByteRange(1, 4, 12, True)
    assert phases_of([[read], [read], [write], [read], [write]]) == [0, 0, 1, 2, 3]
    assert phases_of([[write], [ByteRange(2, 4, 12, True)], [ByteRange(1, 12, 16, True)]]) == [0, 0, 0]
