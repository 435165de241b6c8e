"""Quick runs omit cases that execute only what other tests execute."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from tests import marks, repeats
from tests.processes import python
from tests.repeats import Record, chosen

ROOT = Path(__file__).resolve().parent.parent

CONFTEST = """
from pathlib import Path
import tests.marks
from tests.marks import pytest_collection_modifyitems
tests.marks.REPEATED = Path(__file__).with_name("cases.txt")
"""
# The same branches of optdb compute the powers 2 and 3, as products; other branches compute the power 0.3.
TESTS = """
import pytest
from optdb.codegen.loops.body import power

@pytest.mark.parametrize("exponent", [0.3, 2, 3])
def test_powers(exponent):
    power(0, exponent, "float32", lambda scalar, values: 0)
"""


def test_a_case_is_omitted_if_other_tests_execute_the_same():
    tests = {
        "a.py::test_one[x]": Record(3.0, [1, 2]),
        "a.py::test_one[y]": Record(1.0, [1]),
        "a.py::test_one[z]": Record(2.0, [3]),
        "a.py::test_other": Record(9.0, [2]),
        "b.py::test_one[x]": Record(9.0, [4]),
        "b.py::test_one[y]": Record(9.0, [5]),
    }
    assert chosen(tests) == {"a.py::test_one": ["x"]}


def test_each_test_keeps_a_case_and_short_cases_are_kept():
    tests = {
        "a.py::test_all": Record(1.0, [1, 2, 3]),
        "a.py::test_one[x]": Record(3.0, [1]),
        "a.py::test_one[y]": Record(2.0, [1]),
        "a.py::test_two[x]": Record(0.01, [1]),
        "a.py::test_two[y]": Record(0.01, [1]),
    }
    assert chosen(tests) == {"a.py::test_one": ["x"]}


def test_cases_that_check_documents_are_kept():
    tests = {
        "tests/test_docs.py::test_code[x.md]": Record(1.0, [1]),
        "tests/test_docs.py::test_code[y.md]": Record(1.0, [1]),
    }
    assert chosen(tests) == {}


def test_listed_tests_exist():
    listed = marks.repeated_cases()
    assert listed
    for test in listed:
        path, *_, name = test.split("::")
        assert f"def {name}(" in (ROOT / path).read_text(), f"{test} is gone: run `make repeats`, or remove its lines"


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "conftest.py").write_text(CONFTEST)
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers =\n    thorough:\n")
    (tmp_path / "test_some.py").write_text(TESTS)
    return tmp_path


@pytest.mark.thorough
def test_cases_of_recorded_tests_are_chosen_and_omitted(folder, monkeypatch):
    def run(*options, **env):
        env = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "OPTDB_TESTS": "quick", **env}
        done = python("-m", "pytest", "-p", "no:cacheprovider", *options, env=env, cwd=folder)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    records = folder / "records"
    assert "3 passed" in run("-p", "tests.repeats", OPTDB_TEST_RECORDS=str(records))
    monkeypatch.setattr(repeats, "LEAST_SECONDS", 0.0)
    monkeypatch.setattr(repeats, "REPEATED", folder / "cases.txt")
    monkeypatch.setattr(marks, "REPEATED", folder / "cases.txt")
    done = CliRunner().invoke(repeats.main, ["choose", str(records)], catch_exceptions=False)
    assert done.output.startswith("1 of 4 tests are repeated")
    (omitted,) = marks.repeated_cases()["test_some.py::test_powers"]
    assert omitted in ("2", "3")
    assert "2 passed, 1 deselected" in run()
    done = CliRunner().invoke(repeats.main, ["cover", str(records), "--least", "1"], catch_exceptions=False)
    every, _, fewer, _ = done.output.splitlines()
    assert every.startswith("all tests (4): ") and fewer.startswith("without repeated cases (3): ")
    assert every.split(": ")[1] == fewer.split(": ")[1] != "0.00 % of lines and branches"
