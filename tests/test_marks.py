"""Tests of the marks for slow tests."""

from __future__ import annotations

import itertools
import re

import pytest

from tests.processes import python

TESTS = """
import pytest

@pytest.mark.slow_cases("2-cpu"{more})
@pytest.mark.parametrize("kind", ["cpu", "gpu"])
@pytest.mark.parametrize("number", [1, 2])
def test_numbers(number, kind):
    pass

def test_alone():
    pass

@pytest.mark.thorough
def test_deeply():
    pass

@pytest.mark.thorough_cases("1")
@pytest.mark.parametrize("number", [1, 2])
def test_more(number):
    pass
"""

PAIRWISE = """
import pytest

@pytest.fixture(params=["cpu", "gpu"])
def kind(request):
    return request.param

@pytest.mark.pairwise
@pytest.mark.parametrize("dtype, size", [("int8", 1), ("float32", 4), ("float64", 8)])
@pytest.mark.parametrize("name", ["Add", "Mul"])
def test_grid(kind, dtype, size, name):
    print(f"case {kind} {dtype} {name}")
"""


@pytest.fixture
def run(tmp_path):
    """Return a function that runs pytest in a folder with the mark, and returns the exit status and the output."""
    (tmp_path / "conftest.py").write_text(
        "from tests.marks import pytest_collection_modifyitems, pytest_runtest_setup\n"
    )
    marks = "".join(f"    {mark}:\n" for mark in ("slow", "slow_cases", "thorough", "thorough_cases", "pairwise"))
    (tmp_path / "pytest.ini").write_text(f'[pytest]\naddopts = -m "not slow"\nmarkers =\n{marks}')

    def run(*arguments, more="", effort="", tests=TESTS):
        (tmp_path / "test_some.py").write_text(tests.replace("{more}", more))
        env = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "OPTDB_TESTS": effort}
        done = python("-m", "pytest", "-v", "-p", "no:cacheprovider", *arguments, env=env, cwd=tmp_path)
        return done.returncode, done.stdout + done.stderr

    return run


def test_cases_that_are_named_are_slow(run):
    status, quick = run()
    assert status == 0 and "7 passed, 1 deselected" in quick
    assert "[2-cpu]" not in quick and "[1-cpu]" in quick and "test_alone" in quick
    _, slow = run("-m", "slow")
    assert "[2-cpu]" in slow and "1 passed, 7 deselected" in slow


def test_a_case_that_is_missing_fails_the_others(run):
    status, output = run(more=', "3-cpu"')
    assert status == 1 and "4 passed, 1 deselected, 3 errors" in output
    assert "['3-cpu'] are no cases of this test: correct its mark slow_cases" in output
    status, _ = run("test_some.py::test_numbers[1-cpu]", more=', "3-cpu"')
    assert status == 0


def test_thorough_ones_are_left_out_where_few_are_to_run(run):
    _, output = run("-m", "", effort="quick")
    assert "6 passed, 2 deselected" in output
    assert "test_deeply" not in output and "test_more[1]" not in output and "test_more[2]" in output


def test_half_of_the_cases_have_all_pairs(run):
    _, output = run("-s", effort="quick", tests=PAIRWISE)
    assert "6 passed, 6 deselected" in output
    cases = [line.split() for line in re.findall(r"case (\w+ \w+ \w+)", output)]
    assert len(cases) == 6
    for one, other in itertools.combinations(range(3), 2):
        assert len({(case[one], case[other]) for case in cases}) == [2, 3, 2][one] * [2, 3, 2][other]
    _, output = run(tests=PAIRWISE)
    assert "12 passed" in output


def test_a_case_that_is_asked_for_runs(run):
    for case in ("cpu-Add-int8-1", "gpu-Add-int8-1"):
        status, output = run(f"test_some.py::test_grid[{case}]", effort="quick", tests=PAIRWISE)
        assert status == 0 and "1 passed" in output


def test_a_grid_whose_half_lacks_pairs_fails(run):
    two = PAIRWISE.replace('["Add", "Mul"]', '["Add"]')
    status, output = run(effort="quick", tests=two)
    assert status == 1 and "half of its cases lack pairs of values: remove its mark pairwise" in output
