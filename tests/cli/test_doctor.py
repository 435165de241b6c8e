"""``python -m optdb doctor``."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pip
import pytest

from optdb.cli import checks
from optdb.cli.terminal import verbatim
from optdb.runtime import devices
from optdb.runtime.device_profiles import profile_of
from tests.processes import python, python_path
from tests.runtime.fake_devices import FakeDevice


def _nothing():
    return "fine"


def _slow():
    raise checks.CheckFailed("too slow", "a faster one", fatal=False)


def _fails():
    raise checks.CheckFailed("broken", "mend it")


def _unforeseen():
    raise RuntimeError("[red] oops")


@pytest.fixture
def table(capsys):
    """Return a function that runs the given checks, and returns the exit status and the output."""

    def run(**functions):
        status = checks.report(functions)
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


def _off():
    raise checks.CheckFailed("missing", "get it", optional=True)


def test_what_is_optional_is_no_failure(table):
    status, out = table(one=_off, two=_nothing)
    assert status == 0
    assert "off" in out
    assert "get it" in out
    assert "fine" in out


def test_it_says_what_it_looks_at(capsys):
    checks.report({"one": _nothing})
    assert "checking the installation" in capsys.readouterr().err


@pytest.mark.slow
def test_without_pyopencl(tmp_path):
    (tmp_path / "sitecustomize.py").write_text("import sys\nsys.modules['pyopencl'] = None\n")
    done = python("-m", "optdb", "doctor", flags="cxx=", env={"COLUMNS": "200", "PYTHONPATH": python_path(tmp_path)})
    assert done.returncode == 0, done.stdout + done.stderr
    assert "PyOpenCL" in done.stdout
    assert "pip install 'optdb[opencl]'" in done.stdout


def test_a_memory_checker_is_slow(monkeypatch):
    row = devices.DeviceInfo("opencl0:0", profile_of(FakeDevice("Oclgrind Simulator", "Oclgrind")), None)
    monkeypatch.setattr(devices, "list_devices", lambda: [row])
    monkeypatch.setattr(devices, "find", lambda spec: row)
    with pytest.raises(checks.CheckFailed, match="Oclgrind Simulator: a memory checker") as caught:
        checks._opencl()
    assert caught.value.mark == checks.SLOW


@pytest.mark.slow
def test_here():
    done = python("-m", "optdb", "doctor", flags="cxx=", env={"COLUMNS": "200"})
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1.0.5" in done.stdout
    assert "apt-get install g++" in done.stdout


@pytest.fixture
def environment(tmp_path, monkeypatch):
    """Make this process's Python appear to be in a test folder; return a function that writes a `pip` script there."""

    def write(*lines):
        (tmp_path / "pip").write_text("\n".join(lines))
        (tmp_path / "pip").chmod(0o755)

    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    return write


def pip_says(folder):
    return "#!/bin/sh", f"echo 'pip 24.2 from {folder} (python 3.13)'"


def test_pip_of_this_python(environment):
    assert checks._pip() == "not in this environment"
    environment(*pip_says(Path(pip.__file__).parent))
    assert checks._pip() == "24.2, installs for this Python"


@pytest.mark.parametrize(
    ("lines", "finding"),
    [
        (pip_says("/other/lib/python3.13/site-packages/pip"), r"another Python, not .*\n    /other/lib/python3.13/"),
        (["#!/none/python3.13"], r"cannot be started: No such file or directory\n    .*/pip$"),
        (["#!/bin/sh", "exit 1"], r"prints no version\n    .*/pip$"),
    ],
)
def test_pip_of_another_python(environment, table, lines, finding):
    environment(*lines)
    with pytest.raises(checks.CheckFailed) as caught:
        checks._pip()
    assert re.search(finding, caught.value.finding)
    status, out = table(pip=checks._pip, others=_nothing)
    assert status == 1
    assert re.search(r"^pip +fails", out, re.MULTILINE)
    assert re.search(r"^others +works", out, re.MULTILINE)


def test_libraries(table, monkeypatch):
    from optdb.host.theano.importing import support
    from optdb.host.theano.importing.compat import versions

    installed = {}
    monkeypatch.setattr(versions, "installed", lambda name: installed.get(name, ()))
    monkeypatch.setattr(support, "found", lambda name: ".".join(map(str, installed[name])))
    with pytest.raises(checks.CheckFailed, match=r"no supported library is installed \(Lasagne, Keras,") as none:
        checks._libraries()
    assert none.value.mark == checks.OFF
    installed["Lasagne"] = (0, 1)
    assert checks._libraries() == "Lasagne 0.1: translated like Theano"
    installed["Keras"] = (3, 6)
    with pytest.raises(checks.CheckFailed) as failure:
        checks._libraries()
    assert str(failure.value).splitlines()[1] == "Keras 3.6: not translated (optdb supports >=2.3,<2.4)"
    assert failure.value.cure.endswith('--no-deps "Keras>=2.3,<2.4"')
    assert not failure.value.fatal
    status, _ = table(libraries=checks._libraries)
    assert status == 0


def test_a_folder_that_cannot_be_written_is_not_kept_in(monkeypatch):
    from optdb.host.theano.importing.compat import loader, versions

    monkeypatch.setattr(versions, "needs_translation", lambda: True)
    monkeypatch.setattr(loader, "cache_dir", lambda: Path("/proc/none"))
    with pytest.raises(checks.CheckFailed, match="in each process: ") as failure:
        checks._translation()
    assert "cached in" not in failure.value.finding
    assert "    export XDG_CACHE_HOME=FOLDER" in failure.value.cure.splitlines()


def test_paths_and_commands_have_lines_of_their_own(table, monkeypatch):
    path, command = f"/folder/{80 * 'x'}", f"pip install {80 * 'y'}"
    monkeypatch.setenv("COLUMNS", "80")

    def check():
        raise checks.CheckFailed(f"cannot be written\n{verbatim(path)}", f"name another:\n{verbatim(command)}")

    _, out = table(folder=check)
    assert {f"    {path}", f"    {command}"} <= set(out.splitlines())


def test_long_options_of_a_blas_are_one_line(table, monkeypatch):
    options = f"-L/folder/{80 * 'x'} -lopenblas"
    monkeypatch.setattr(checks.trials, "ldflags", lambda: options)
    assert f"    {options}" in table(BLAS=checks._blas)[1].splitlines()
    monkeypatch.setattr(checks.trials, "ldflags", lambda: "-lopenblas")
    assert checks._blas() == "-lopenblas"


def test_an_empty_kernel_cache_is_explained(monkeypatch, tmp_path):
    from optdb.cli import kernels
    from optdb.runtime.binaries import Binaries

    monkeypatch.setattr(kernels, "folder", lambda: Binaries(tmp_path, 1))
    assert "0 program(s), 0.0 of 1 MB. A program is stored when a function first runs" in checks._kernel_cache()
    monkeypatch.setattr(kernels, "folder", lambda: Binaries(tmp_path, 0))
    assert "is stored when" not in checks._kernel_cache()


def test_the_cure_of_a_driver_comes_before_another_driver(monkeypatch):
    rows = [
        devices.DeviceInfo("opencl0:0", profile_of(FakeDevice("Oclgrind Simulator", "Oclgrind")), None),
        devices.DeviceInfo("opencl1:0", profile_of(FakeDevice("Processor", "PoCL")), "no ld", "install binutils"),
    ]
    monkeypatch.setattr(devices, "list_devices", lambda: rows)
    monkeypatch.setattr(devices, "find", lambda spec: rows[0])
    with pytest.raises(checks.CheckFailed) as caught:
        checks._opencl()
    assert caught.value.cure == "install binutils"


def test_results_come_after_the_progress(capsys):
    def second():
        assert capsys.readouterr().out == ""
        return "fine"

    assert checks.report({"one": _nothing, "two": second}) == 0
    assert capsys.readouterr().out.count("fine") == 2
