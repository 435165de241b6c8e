"""``python -m optdb explain``: what it prints after a script."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import pytest
from click import ClickException

from optdb.cli.explain import _report, explain_script


def explanation(*places):
    return SimpleNamespace(name="f", places=dict.fromkeys(places, 1), render=lambda: f"runs on {places}")


@pytest.mark.parametrize(
    ("explanations", "advises"),
    [([["host"], ["host"]], True), ([["host"], ["host", "opencl"]], False), ([["opencl"]], False), ([], False)],
)
def test_where_no_op_is_on_a_device_the_flag_is_named(capsys, explanations, advises):
    _report([explanation(*places) for places in explanations], None)
    shown = capsys.readouterr().err
    assert ("THEANO_FLAGS=optdb.device=opencl" in shown) == advises
    assert ("no function was compiled" in shown) == (not explanations)


@pytest.mark.parametrize("option", ["html", "pictures"])
def test_a_script_is_not_run_for_a_report_that_cannot_be_written(monkeypatch, tmp_path, option):
    monkeypatch.setattr(sys.modules["optdb.cli.explain"], "launch", lambda *_, **__: pytest.fail("run"))
    (tmp_path / "file").touch()
    path = tmp_path / "file" / "report.html"
    with pytest.raises(ClickException, match="The cure: name a folder with space"):
        explain_script("script.py", [], **{option: path})
