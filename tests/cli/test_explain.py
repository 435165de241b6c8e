"""The output of ``python -m optdb explain`` after it has run a script."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path
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
    _report([explanation(*places) for places in explanations])
    shown = capsys.readouterr().err
    assert ("THEANO_FLAGS=optdb.device=opencl" in shown) == advises
    assert ("no function was compiled" in shown) == (not explanations)


def test_paths_are_printed_as_given_and_meant_where_the_command_was_started(monkeypatch, tmp_path, capsys):
    """Files are written relative to the folder in which the command was started, even if the script changes folders."""
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys.modules["optdb.cli.explain"], "launch", lambda *_, **__: os.chdir("elsewhere"))
    monkeypatch.setattr(sys.modules["optdb.cli.explain"], "_report", lambda *paths: print(*paths[1:]))
    explain_script("script.py", [], html=Path("build", "r.html"), pictures=Path("build"))
    printed = capsys.readouterr()
    assert "open build/r.html in a browser\n" in printed.err
    assert printed.out.split() == ["build", str(tmp_path / "build")]
    assert (tmp_path / "build" / "r.html").is_file()


def test_a_picture_is_named_as_its_folder_is(tmp_path, capsys):
    drawn = SimpleNamespace(**vars(explanation("host")), picture=lambda path: path)
    _report([drawn], Path("pictures"), tmp_path / "pictures")
    assert re.search(r"picture: pictures/0\.(svg|dot)", capsys.readouterr().err)
    assert (tmp_path / "pictures").is_dir()


@pytest.mark.parametrize("option", ["html", "pictures"])
def test_a_script_is_not_run_for_a_report_that_cannot_be_written(monkeypatch, tmp_path, option):
    monkeypatch.setattr(sys.modules["optdb.cli.explain"], "launch", lambda *_, **__: pytest.fail("run"))
    (tmp_path / "file").touch()
    path = tmp_path / "file" / "report.html"
    with pytest.raises(ClickException, match="The cure: name a folder with space"):
        explain_script("script.py", [], **{option: path})
