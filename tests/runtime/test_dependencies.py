"""Commands are divided into as few phases and stages as their dependencies allow."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from optdb.runtime.dependencies import ByteRange, phases_of, roomy_phases_of, stages_of

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


@given(plans, st.data(), st.integers(1, 6))
def test_commands_wait_for_room_where_nothing_waits_for_them(commands, data, groups):
    size = len(commands)
    tiles = data.draw(st.lists(st.integers(0, 8), min_size=size, max_size=size))
    is_long = data.draw(st.lists(st.booleans(), min_size=size, max_size=size))
    phases, earliest = roomy_phases_of(commands, tiles, is_long, groups), phases_of(commands)
    assert sorted(set(phases)) == sorted(set(earliest))
    for index, command in enumerate(commands):
        assert phases[index] >= earliest[index]
        before = [phases[number] for number in range(index) if depends(command, commands[number])]
        assert phases[index] > max(before, default=-1)


def test_a_command_waits_for_a_phase_with_room():
    def used(reads, writes):
        return [ByteRange(reads, 0, 8, False), ByteRange(writes, 0, 8, True)]

    # Four commands form a chain through memories 1, 2 and 3; nothing depends on two other commands, which read memory
    # 1.
    commands = [used(0, 1), used(1, 2), used(1, 9), used(1, 10), used(2, 3), used(3, 4)]
    tiles, is_long = [4, 4, 2, 2, 2, 1], [False, True, False, True, False, True]
    assert roomy_phases_of(commands, tiles, is_long, 4) == [0, 1, 2, 3, 2, 3]
    # Commands are not postponed to phases without spare capacity.
    assert roomy_phases_of(commands, [4, 4, 2, 2, 4, 4], is_long, 4) == [0, 1, 1, 1, 2, 3]
    assert roomy_phases_of(commands, tiles, [False] * 6, 4) == [0, 1, 2, 3, 2, 3]
    assert roomy_phases_of([], [], [], 4) == []


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
