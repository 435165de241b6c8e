"""``python -m optdb activate`` and ``deactivate`` change a virtual environment that the test creates."""

from __future__ import annotations

import os
import subprocess
import sys
import venv
from pathlib import Path

import pytest
from click.testing import CliRunner

from optdb.cli import cli
from optdb.host.theano.importing import activation
from tests.processes import ROOT


@pytest.fixture(scope="module")
def environment(tmp_path_factory):
    """The Python of a virtual environment that can import this environment's packages and this checkout's optdb."""
    folder = tmp_path_factory.mktemp("environment") / "venv"
    venv.create(folder, symlinks=True)
    python = folder / "bin" / "python"
    [packages] = folder.glob("lib/*/site-packages")
    ours = [path for path in sys.path if path.endswith("site-packages")]
    (packages / "ours.pth").write_text("\n".join([str(ROOT), *ours]))
    return python


def run(python, *arguments):
    env = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    return subprocess.run([python, *arguments], capture_output=True, text=True, env=env, cwd=Path("/"))


def modules(python, code):
    """Return the modules of optdb and Theano that a program has imported."""
    done = run(python, "-c", f"{code}\nimport sys; print(*sorted({{m.partition('.')[0] for m in sys.modules}}))")
    assert done.returncode == 0, done.stderr
    return {"optdb", "theano", "numpy"}.intersection(done.stdout.split())


def test_theano_brings_optdb_and_nothing_else_does(environment):
    done = run(environment, "-m", "optdb", "activate")
    assert done.returncode == 0, done.stderr
    assert "optdb_activation.pth" in done.stdout
    assert modules(environment, "") == set()
    assert modules(environment, "import json, importlib.util; importlib.util.find_spec('numpy')") == set()
    assert modules(environment, "import optdb") == {"optdb"}
    assert modules(environment, "import theano; theano.config.optdb.topo") == {"optdb", "theano", "numpy"}
    assert modules(environment, "import theano.tensor as tt, optdb; tt.vector()") == {"optdb", "theano", "numpy"}
    assert modules(environment, "import optdb, theano; theano.config.optdb.topo") == {"optdb", "theano", "numpy"}

    done = run(environment, "-m", "optdb", "deactivate")
    assert done.stdout.startswith("removed ")
    assert run(environment, "-m", "optdb", "deactivate").stdout == "not activated: nothing to do\n"
    assert "optdb" not in modules(environment, "try: import theano\nexcept Exception: pass")


def test_a_library_brings_optdb(environment):
    """If a library imports names that Python has removed, optdb is imported too, and restores these names."""
    [packages] = environment.parent.parent.glob("lib/*/site-packages")
    (packages / "downhill.py").write_text("from collections import Mapping\n")
    info = packages / "downhill-0.4.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: downhill\nVersion: 0.4.0\n")
    assert run(environment, "-c", "import downhill").returncode == 1
    assert run(environment, "-m", "optdb", "activate").returncode == 0
    assert "optdb" in modules(environment, "import downhill")
    assert modules(environment, "import json") == set()
    assert run(environment, "-m", "optdb", "deactivate").returncode == 0


def test_programs_start_where_optdb_was_removed(environment, tmp_path):
    assert run(environment, "-m", "optdb", "activate").returncode == 0
    [packages] = environment.parent.parent.glob("lib/*/site-packages")
    listed = (packages / "ours.pth").read_text()
    try:
        (packages / "ours.pth").write_text("")
        assert modules(environment, "try: import theano\nexcept ImportError: print('missing')") == set()
    finally:
        (packages / "ours.pth").write_text(listed)
        assert run(environment, "-m", "optdb", "deactivate").returncode == 0


@pytest.mark.parametrize("command", ["activate", "deactivate"])
def test_a_folder_that_cannot_be_written_is_named(monkeypatch, command):
    monkeypatch.setattr(activation, "pth_file", lambda: Path("/proc/version/optdb_activation.pth"))
    result = CliRunner().invoke(cli, [command])
    assert result.exit_code == 1
    assert "/proc/version" in result.output
    assert "The cure: " in result.output
