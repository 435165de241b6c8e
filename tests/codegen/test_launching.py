"""Launch data are computed once for each key and each owner."""

from __future__ import annotations

import pytest

from optdb.codegen.kernels.launching import LaunchCache


def test_a_value_is_worked_out_once():
    made = []
    cache = LaunchCache()
    assert [cache.get((2, 3), lambda: made.append(1) or len(made)) for _ in range(3)] == [1, 1, 1]
    assert cache.get((3, 2), lambda: "another") == "another"


def test_nothing_is_a_value_too():
    made = []
    cache = LaunchCache()
    for _ in range(2):
        assert cache.get("key", lambda: made.append(1)) is None
    assert made == [1]


def test_with_another_owner_it_is_worked_out_again():
    first, second = {}, {}
    cache = LaunchCache()
    assert cache.get("key", lambda: "of the first", owner=first) == "of the first"
    assert cache.get("key", lambda: "of the second", owner=second) == "of the second"
    assert cache.get("key", lambda: "never", owner=second) == "of the second"


def test_what_fails_is_tried_again():
    cache = LaunchCache()
    for _ in range(2):
        with pytest.raises(ZeroDivisionError):
            cache.get("key", lambda: 1 // 0)
    assert cache.get("key", lambda: 3) == 3


def test_it_does_not_grow_beyond_its_size():
    cache = LaunchCache(4)
    for key in range(10):
        cache.get(key, lambda key=key: key)
    remembered = [key for key in reversed(range(10)) if cache.get(key, lambda: None) is not None]
    assert 9 in remembered
    assert len(remembered) <= 4
