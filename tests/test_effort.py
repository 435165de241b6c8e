"""Tests run all of their examples, or a fraction."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import settings

from tests.effort import examples

TESTS = Path(__file__).parent


@pytest.mark.parametrize(("count", "fewer"), [(300, 75), (20, 5), (12, 3), (4, 2), (1, 1)])
def test_a_smaller_effort_makes_a_part_of_the_examples(monkeypatch, count, fewer):
    monkeypatch.setenv("OPTDB_TESTS", "quick")
    assert examples(count) == fewer
    assert examples(count, share=10) == min(fewer, max(2, count // 10))
    monkeypatch.delenv("OPTDB_TESTS")
    assert examples(count) == examples(count, share=10) == count


def test_tests_that_ask_for_no_number_make_a_part_of_100():
    assert settings.get_profile("optdb").max_examples == examples(100)


def test_all_numbers_of_examples_depend_on_the_effort():
    fixed = re.compile(r"max_examples=(?!examples\()\S*")
    found = {path: fixed.findall(path.read_text()) for path in TESTS.rglob("*.py") if path.name != Path(__file__).name}
    assert not {path: numbers for path, numbers in found.items() if numbers}
