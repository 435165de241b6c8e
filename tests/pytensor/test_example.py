"""examples/sample.py."""

from __future__ import annotations

import re
import runpy
import sys
from pathlib import Path

import pytest

pytest.importorskip("pymc")

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "sample.py"


@pytest.mark.slow
@pytest.mark.parametrize("options", [(), ("--default",)])
def test_it_finds_the_weights(options, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", [EXAMPLE.name, "--rows", "2000", "--draws", "50", *options])
    runpy.run_path(str(EXAMPLE), run_name="__main__")
    first, others = re.search(r"first weight is (\S+), the others at most (\S+)", capsys.readouterr().out).groups()
    assert 0.8 < float(first) < 1.2 and float(others) < 0.3
