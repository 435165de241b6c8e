"""Next values are written over the present ones, and what lies there is copied before."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from optdb.runtime.updates import find_commit

#: Values are pairs of a buffer and what is in it.


def buffer_of(value):
    return value[0]


def is_in_place(present, following):
    return present[0] == following[0]


def test_swapped_values_are_copied_before():
    a, b = ("a", 1), ("b", 2)
    commit = find_commit([("x", a, b), ("y", b, a)], [("x'", b), ("y'", a)], buffer_of, is_in_place)
    assert commit.written == ["x", "y"]
    assert commit.aliased == ["x'", "y'"]


def test_a_result_that_is_the_present_value_is_copied_only_if_that_is_overwritten():
    a = ("a", 1)
    values = [("result", a), ("other", ("c", 3)), ("nowhere", (None, 0))]
    assert find_commit([("x", a, ("b", 2))], values, buffer_of, is_in_place).aliased == ["result"]
    assert find_commit([("x", a, a)], values, buffer_of, is_in_place).aliased == []


@given(st.data())
def test_nothing_is_lost(data):
    """As if all next values were computed elsewhere and written at once."""
    names = "abcdef"
    memory = {name: number for number, name in enumerate(names)}
    arrays = data.draw(st.lists(st.sampled_from(names), unique=True, max_size=4))
    updates = [(name, (name,), (data.draw(st.sampled_from(names)),)) for name in arrays]
    results = [(("result", i), (data.draw(st.sampled_from(names)),)) for i in range(3)]
    following = [(("next", key), value) for key, _, value in updates]
    expected = {key: memory[buffer_of(value)] for key, value in (*results, *following)}

    commit = find_commit(updates, [*results, *following], buffer_of, is_in_place)
    values = dict([*results, *following])
    copies = {}
    for key in commit.aliased:
        copies[key] = memory[buffer_of(values[key])]
    for key in commit.written:
        source = ("next", key)
        memory[key] = copies[source] if source in copies else memory[buffer_of(values[source])]
    found = {key: copies[key] if key in copies else memory[buffer_of(value)] for key, value in values.items()}
    for key, _ in results:
        assert found[key] == expected[key]
    for name in arrays:
        assert memory[name] == expected["next", name]
