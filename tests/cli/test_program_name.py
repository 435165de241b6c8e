"""Usage texts name the program as it was started: ``python -m optdb``, or the console script ``optdb``."""

from __future__ import annotations

import configparser
import re
from pathlib import Path

import pytest

from tests.processes import python

ROOT = Path(__file__).resolve().parent.parent.parent


@pytest.fixture
def script(tmp_path):
    """The console script, as pip writes it for the entry point in setup.cfg."""
    setup = configparser.ConfigParser()
    setup.read(ROOT / "setup.cfg")
    [(name, module, function)] = re.findall(
        r"^(\w+) = ([\w.]+):(\w+)$", setup["options.entry_points"]["console_scripts"], re.MULTILINE
    )
    path = tmp_path / name
    path.write_text(f"import sys\nfrom {module} import {function}\nsys.exit({function}())\n")
    return path


def run(script, *arguments):
    return python(str(script), *arguments)


def test_the_module():
    assert python("-m", "optdb", "--help").stdout.startswith("Usage: python -m optdb [OPTIONS] COMMAND [ARGS]...\n")
    wrong = python("-m", "optdb", "cache", "--what")
    assert wrong.returncode == 2
    assert wrong.stderr.startswith(
        "Usage: python -m optdb cache [OPTIONS]\nTry 'python -m optdb cache --help' for help.\n"
    )


def test_the_console_script(script):
    assert run(script, "--help").stdout.startswith("Usage: optdb [OPTIONS] COMMAND [ARGS]...\n")
    wrong = run(script, "cache", "--what")
    assert wrong.returncode == 2
    assert wrong.stderr.startswith("Usage: optdb cache [OPTIONS]\nTry 'optdb cache --help' for help.\n")


@pytest.mark.slow
def test_both_do_the_same(script):
    assert run(script, "--version").stdout == python("-m", "optdb", "--version").stdout
    assert run(script, "nonsense").returncode == python("-m", "optdb", "nonsense").returncode == 2
