"""The wheel and the sdist are built, checked, and imported outside of the checkout."""

from __future__ import annotations

import email
import os
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

import optdb

ROOT = Path(__file__).resolve().parent.parent

pytestmark = pytest.mark.slow
build = pytest.importorskip("build", reason="built by the package build: pip install '.[dev]'")
filelock = pytest.importorskip("filelock", reason="one process builds at a time: pip install '.[dev]'")


@pytest.fixture(scope="module")
def dist(tmp_path_factory):
    """Build the sdist, and the wheel from the sdist, as ``make dist`` does."""
    folder = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "build", "--outdir", str(folder), str(ROOT)]
    # Other test processes have to wait, because the files are assembled in the checkout.
    (ROOT / "build").mkdir(exist_ok=True)
    with filelock.FileLock(ROOT / "build" / "dist.lock"):
        done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    return folder


@pytest.fixture(scope="module")
def wheel(dist):
    [path] = dist.glob("*.whl")
    return path


@pytest.fixture(scope="module")
def installed(wheel, tmp_path_factory):
    """A folder with the files that the wheel installs, and nothing from the checkout."""
    folder = tmp_path_factory.mktemp("installed")
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(folder), str(wheel)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return folder


def _run(installed, tmp_path, *args):
    env = {**os.environ, "PYTHONPATH": str(installed), "THEANO_FLAGS": "", "COLUMNS": "200"}
    return subprocess.run([sys.executable, *args], capture_output=True, text=True, env=env, cwd=tmp_path)


@pytest.mark.thorough
@pytest.mark.slow
def test_the_index_would_take_it(dist):
    pytest.importorskip("twine")
    command = [sys.executable, "-m", "twine", "check", "--strict", *map(str, dist.iterdir())]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("PASSED") == 2


def test_metadata(wheel):
    with zipfile.ZipFile(wheel) as archive:
        [name] = [name for name in archive.namelist() if name.endswith(".dist-info/METADATA")]
        metadata = email.message_from_bytes(archive.read(name))
    assert metadata["Name"] == "optdb"
    assert metadata["Version"] == optdb.__version__
    assert metadata["Author"] == "The optdb developers"
    # The version of setuptools determines in which of the two fields the license is.
    assert "BSD-3-Clause" in (metadata["License"], metadata["License-Expression"])
    assert "Typing :: Typed" in metadata.get_all("Classifier")
    extras = set(metadata.get_all("Provides-Extra"))
    assert {"all", "opencl", "oclgrind", "picture", "profiles"} <= extras
    assert 'optdb[distributed,opencl,picture,profiles]; extra == "all"' in metadata.get_all("Requires-Dist")
    addresses = dict(value.split(", ") for value in metadata.get_all("Project-URL"))
    home = metadata["Home-page"] or addresses.pop("Homepage")
    assert {"Source", "Issues", "Changelog"} <= set(addresses)
    # All URLs begin with the URL of the home page, so that only one value has to be filled in.
    assert all(address.startswith(home) for address in addresses.values())


def test_the_wheel_has_what_is_needed_and_no_more(wheel):
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    assert {name.split("/")[0].split("-")[0] for name in names} == {"optdb", "profiles"}
    in_checkout = {path.relative_to(ROOT).as_posix() for path in (ROOT / "optdb").rglob("*.py")}
    assert in_checkout <= set(names)
    assert "optdb/py.typed" in names
    for kind in ("*.h", "*.cl"):
        assert {path.relative_to(ROOT).as_posix() for path in (ROOT / "optdb").rglob(kind)} <= set(names)
    assert any(name.endswith("licenses/LICENSE") for name in names)


def test_the_sdist_can_be_tested(dist):
    [path] = dist.glob("*.tar.gz")
    with tarfile.open(path) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {"LICENSE", "CHANGELOG.md", "CONTRIBUTING.md", "Makefile", ".ci/run", "tests/conftest.py"} <= names
    assert "examples/eye.cl" in names
    assert not any(name.endswith(".pyc") for name in names)


@pytest.mark.slow
def test_it_works_where_it_is_installed(installed, tmp_path):
    code = """
import optdb, profiles.compare, theano, theano.tensor as tt
x = tt.dvector()
with optdb.enable():
    f = theano.function([x], (tt.exp(tt.log(x)) * 2) ** 2)
print(optdb.__file__, profiles.__file__, f([1.0, 2.0]).tolist())
"""
    done = _run(installed, tmp_path, "-c", code)
    assert done.returncode == 0, done.stderr
    ours, theirs, values = done.stdout.strip().split(" ", 2)
    assert Path(ours).is_relative_to(installed)
    assert Path(theirs).is_relative_to(installed)
    assert values == "[4.0, 16.0]"


@pytest.mark.thorough
@pytest.mark.slow
def test_its_commands_work_where_it_is_installed(installed, tmp_path):
    assert optdb.__version__ in _run(installed, tmp_path, "-m", "optdb", "--version").stdout
    done = _run(installed, tmp_path, "-m", "optdb", "doctor")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "MODELS" in _run(installed, tmp_path, "-m", "profiles.compare", "--help").stdout
