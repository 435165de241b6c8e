"""``python -m optdb install-theano``."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from optdb.cli import cli
from optdb.host.theano.importing.compat import installing, versions


@pytest.fixture
def pip(monkeypatch):
    """Record the calls of pip, which succeed unless the test decides otherwise."""
    calls = []

    def run(command, env):
        shim = Path(env.get("PYTHONPATH", "").split(":")[0], "sitecustomize.py")
        calls.append((command, shim.read_text() if shim.is_file() else None))
        return subprocess.CompletedProcess(command, run.status)

    run.status = 0
    monkeypatch.setattr(subprocess, "run", run)
    monkeypatch.setattr(versions, "installed", lambda package: ())
    calls_and_run = calls, run
    return calls_and_run


def test_theano_is_built_with_the_shim(pip):
    calls, _ = pip
    installing.install(["--index-url", "https://example.org"])
    (first, no_shim), (second, shim) = calls
    assert first[:3] == second[:3] == [sys.executable, "-m", "pip"]
    assert "--target" in first and installing.SETUPTOOLS in first and no_shim is None
    assert installing.THEANO in second and "--no-build-isolation" in second
    assert "SafeConfigParser" in shim
    assert all("https://example.org" in command for command in (first, second))


def test_where_it_is_installed_nothing_happens(pip, monkeypatch):
    monkeypatch.setattr(versions, "installed", lambda package: (1, 0, 5))
    installing.install()
    assert not pip[0]


def test_pip_fails(pip):
    pip[1].status = 1
    with pytest.raises(installing.CannotInstall, match="pip failed"):
        installing.install()


def test_without_pip(pip, monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(installing.CannotInstall, match="python -m ensurepip"):
        installing.install()


def test_the_shim_gives_what_versioneer_uses(tmp_path):
    (tmp_path / "sitecustomize.py").write_text(installing.SITECUSTOMIZE)
    (tmp_path / "some.cfg").write_text("[a]\nb = 1\n")
    code = (
        "import configparser; p = configparser.SafeConfigParser()\n"
        "p.readfp(open('some.cfg')) if hasattr(p, 'readfp') else p.read('some.cfg'); print(p.get('a', 'b'))"
    )
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code],
        cwd=tmp_path,
        env={"PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
    )
    assert done.stdout.strip() == "1", done.stderr


@pytest.mark.parametrize(("options", "printed"), [([], "is installed already"), (["--quiet"], "")])
def test_the_command_says_that_there_is_nothing_to_do(options, printed):
    result = CliRunner().invoke(cli, ["install-theano", *options])
    assert result.exit_code == 0
    assert printed in result.output
    assert bool(result.output) == bool(printed)
