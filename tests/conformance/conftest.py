"""Fixtures that replace Theano's test suite by a suite of a few lines in a temporary folder."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from textwrap import dedent

import pytest

from conformance.runner import Settings

Write = Callable[[str, str], str]


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    """Return settings whose root is an empty folder, with a short time limit."""
    root = tmp_path / "root"
    root.mkdir()
    return Settings(root=root, work=tmp_path / "work", flags="cxx=", timeout=1)


@pytest.fixture
def write(settings: Settings) -> Write:
    """Return a function that writes a suite file below the root and returns its name."""

    def write_file(name: str, source: str) -> str:
        (settings.root / name).write_text(dedent(source))
        return name

    return write_file
