"""``python -m optdb doctor``."""

from __future__ import annotations

import pytest

from optdb.cli import checks
from tests.processes import python


def _nothing():
    return "fine"


def _slow():
    raise checks.Trouble("too slow", "a faster one", fatal=False)


def _fails():
    raise checks.Trouble("broken", "mend it")


def _unforeseen():
    raise RuntimeError("[red] oops")


@pytest.fixture
def table(monkeypatch, capsys):
    """Run these checks; return the exit status and what is printed."""

    def run(**functions):
        monkeypatch.setattr(checks, "CHECKS", functions)
        status = checks.report()
        return status, capsys.readouterr().out

    return run


def test_all_works(table):
    status, out = table(one=_nothing)
    assert status == 0
    assert "works" in out


def test_what_is_slow_is_no_failure(table):
    status, out = table(one=_slow, two=_nothing)
    assert status == 0
    assert "too slow" in out
    assert "a faster one" in out
    assert "fine" in out


@pytest.mark.parametrize(("check", "words"), [(_fails, ["broken", "mend it"]), (_unforeseen, ["RuntimeError: [red]"])])
def test_after_a_failure_the_rest_is_skipped(table, check, words):
    status, out = table(one=check, two=_nothing)
    assert status == 1
    assert all(word in out for word in words)
    assert "fine" not in out


def test_here():
    done = python("-m", "optdb", "doctor", flags="cxx=", env={"COLUMNS": "200"})
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1.0.5" in done.stdout
    assert "apt-get install g++" in done.stdout
