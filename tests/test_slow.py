"""The list of tests that take long."""

from __future__ import annotations

import re
import subprocess
import sys

from tests import slow


def test_what_takes_more_is_listed(tmp_path):
    path = tmp_path / "slow.txt"
    slow.write_list([("tests/a.py::test_c", 9.0), ("tests/a.py::test_b", 0.5), ("tests/a.py::test_a[1]", 1.5)], path)
    assert path.read_text().splitlines()[1:] == ["tests/a.py::test_a[1]", "tests/a.py::test_c"]


def test_the_list_names_tests_that_there_are():
    """A test that was renamed would be a quick one again."""
    for test in slow.slow_tests():
        file, *_, function = test.partition("[")[0].split("::")
        assert re.search(rf"def {function}\(", (slow.ROOT / file).read_text()), test


def test_what_is_listed_is_left_out_unless_it_is_asked_for():
    long = min(slow.slow_tests())
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider", long]
    quick, everything = (
        subprocess.run([*command, *more], cwd=slow.ROOT, capture_output=True, text=True).stdout
        for more in ([], ["-m", ""])
    )
    assert long not in quick and "1 deselected" in quick
    assert long in everything
