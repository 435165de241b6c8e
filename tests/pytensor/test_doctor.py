"""Tests of ``python -m optdb`` in an environment with PyTensor."""

from __future__ import annotations

import os
import re
import subprocess
import sys

import pytest

from optdb.cli import checks, pytensor_checks
from optdb.host.theano.importing import support
from optdb.runtime.errors import DeviceError


def installed(monkeypatch, **versions):
    """Make packages appear to have the given versions, or to be missing (None)."""
    found = support.found
    monkeypatch.setattr(support, "found", lambda name: versions[name] if name in versions else found(name))


def run(*args):
    return subprocess.run(
        [sys.executable, "-m", "optdb", *args], capture_output=True, text=True, env={**os.environ, "COLUMNS": "200"}
    )


@pytest.mark.slow
def test_all_is_checked_without_theano():
    done = run("doctor")
    assert done.returncode == 0, done.stdout
    for words in ("not needed for PyTensor", "computes a small function", "of >=3.3,<3.4"):
        assert words in done.stdout
    assert "scan" not in done.stdout


@pytest.mark.slow
def test_the_cache_is_shown_without_theano():
    done = run("cache")
    assert done.returncode == 0 and "program(s)" in done.stdout, done.stderr


@pytest.mark.slow
def test_patches_are_those_of_pytensor():
    done = run("doctor", "--patches")
    assert done.returncode == 0, done.stderr
    for words in ("optdb.pytensor.disable()", "    DestroyHandler.__init__\n", "EquilibriumGraphRewriter.apply"):
        assert words in done.stdout


@pytest.mark.slow
def test_a_bug_report_names_flags_and_devices(tmp_path):
    file = tmp_path / "report.txt"
    done = run("doctor", "--report", str(file))
    assert done.returncode == 0, done.stderr
    text = file.read_text()
    for words in ("pytensor 3.3", "mode OPENCL", "opencl0:0", "DestroyHandler.__init__"):
        assert words in text


def test_what_is_installed_is_checked(monkeypatch):
    installed(monkeypatch, Theano=None)
    assert pytensor_checks.chosen_checks() is pytensor_checks.ALONE
    installed(monkeypatch, Theano="1.0.5")
    assert [*pytensor_checks.chosen_checks()] == [*checks.CHECKS, "PyTensor"]
    monkeypatch.setattr(pytensor_checks, "is_installed", lambda: False)
    assert pytensor_checks.chosen_checks() is checks.CHECKS


def failure_of(check):
    with pytest.raises(checks.CheckFailed) as caught:
        check()
    return caught.value


def test_another_version_of_pytensor_fails(monkeypatch):
    import pytensor

    from optdb.pytensor import versions

    monkeypatch.setattr(pytensor, "__version__", "3.4.0")
    monkeypatch.setattr(pytensor_checks.importlib, "import_module", lambda name: versions.check())
    failure = failure_of(pytensor_checks._pytensor)
    assert (failure.finding, failure.fatal) == ("PyTensor 3.4.0 is installed", True)
    assert failure.cure.strip() == f"{sys.executable} -m pip install 'pytensor>=3.3,<3.4'"
    assert not failure_of(pytensor_checks._beside_theano).fatal


@pytest.mark.parametrize(
    ("check", "name", "cure"),
    [
        (pytensor_checks._pymc, "pymc", "python -m pip install 'optdb[pymc]'"),
        (pytensor_checks._nutpie, "nutpie", "python -m pip install 'optdb[nutpie]'"),
    ],
)
def test_what_samples_is_optional(monkeypatch, check, name, cure):
    for version, finding in ((None, "not installed"), ("0.1", "0.1, not >=")):
        installed(monkeypatch, **{name: version})
        failure = failure_of(check)
        assert failure.finding.startswith(finding) and failure.cure.endswith(cure)
        assert failure.mark == checks.OFF


def test_a_package_that_does_not_import_is_told(monkeypatch):
    installed(monkeypatch, pymc="6.4.0")
    monkeypatch.setitem(sys.modules, "pymc", None)
    assert "6.4.0 does not import: import of pymc halted" in failure_of(pytensor_checks._pymc).finding


def test_without_numba_the_default_is_slow(monkeypatch):
    installed(monkeypatch, numba=None)
    assert failure_of(pytensor_checks._default_mode).mark == checks.SLOW


def test_opencl_is_needed_for_pytensor_alone(monkeypatch):
    from optdb.runtime import devices

    def fails():
        raise DeviceError("no driver\nThe cure: get one")

    monkeypatch.setattr(devices, "list_devices", fails)
    assert failure_of(pytensor_checks._opencl).fatal and not failure_of(checks._opencl).fatal
    monkeypatch.setattr(pytensor_checks, "_mode", fails)
    assert failure_of(pytensor_checks._beside_theano).mark == checks.OFF


def test_without_a_device_the_samplers_are_checked(monkeypatch, capsys):
    def no_device():
        raise checks.CheckFailed("no driver", "get one")

    monkeypatch.setitem(pytensor_checks.ALONE, "OpenCL", no_device)
    assert checks.report(pytensor_checks.ALONE) == 1
    marks = dict(re.findall(r"^(\w[\w ]*?)  +(\S+)", capsys.readouterr().out, re.MULTILINE))
    assert [marks[name] for name in ("PyMC", "numba", "nutpie")] == [checks.OK] * 3
    assert [marks[name] for name in ("OpenCL", "mode OPENCL")] == [checks.FAIL, checks.SKIP]
