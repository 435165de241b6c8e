"""``python -m optdb devices``."""

from __future__ import annotations

import re

import pytest

from optdb.cli import hardware
from optdb.runtime import devices
from optdb.runtime.device_profiles import profile_of
from optdb.runtime.devices import DeviceInfo
from optdb.runtime.errors import DeviceError
from tests.processes import python, python_path
from tests.runtime.fake_devices import FakeDevice


@pytest.mark.slow
def test_here():
    done = python("-m", "optdb", "devices", env={"COLUMNS": "200"})
    assert done.returncode == 0, done.stdout + done.stderr
    assert "opencl0:0" in done.stdout
    assert "works" in done.stdout
    assert "optdb.device=opencl selects " in done.stdout


def test_no_driver():
    done = python("-m", "optdb", "devices", env={"OCL_ICD_VENDORS": "/nonexistent", "OPENCL_VENDOR_PATH": "/nowhere"})
    assert done.returncode == 1
    assert done.stdout.startswith("opencl: no OpenCL platform was found.\nThe cure: ")


def test_no_pyopencl(tmp_path):
    (tmp_path / "sitecustomize.py").write_text("import sys\nsys.modules['pyopencl'] = None\n")
    done = python("-m", "optdb", "devices", env={"PYTHONPATH": python_path(tmp_path)})
    assert done.returncode == 1
    assert done.stdout.strip().endswith("The cure: pip install 'optdb[opencl]'")


def test_none_works(monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "200")
    odd = FakeDevice("[odd] device", "[some] platform", global_mem_size=3 * 2**30)
    row = DeviceInfo("opencl0:0", profile_of(odd), "unknown [target]")
    monkeypatch.setattr(devices, "list_devices", lambda: [row])

    def none(spec):
        raise DeviceError("opencl: no such device works")

    monkeypatch.setattr(devices, "find", none)
    assert hardware.report() == 1
    printed = capsys.readouterr().out
    assert "opencl0:0 " in printed
    for part in ("[some] platform", "[odd] device", "fails: unknown [target]", "3.0 GiB", "no such device works"):
        assert part in printed


def test_profiles_are_shown(monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "200")
    row = DeviceInfo("opencl0:0", profile_of(FakeDevice("cpu-[x]", "Portable Computing Language", units=7)), None)
    monkeypatch.setattr(devices, "list_devices", lambda: [row])
    monkeypatch.setattr(devices, "find", lambda spec: row)
    assert hardware.report(profiles=True) == 0
    shown = {name: value for _, name, value, _ in re.findall(r"(│) (\S+) +│ (.*?) +(│)", capsys.readouterr().out)}
    assert shown["driver"] == "Portable Computing Language, version 1.0"
    assert (shown["device_kind"], shown["compute_units"], shown["float16"]) == ("cpu", "7", "False")
    assert "three functions from a kernel" in shown["quirks.compiles_body_repeatedly"]


def test_short_names_are_shown(monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "200")
    row = DeviceInfo("opencl0:0", profile_of(FakeDevice("cpu-x", "Portable Computing Language")), None)
    monkeypatch.setattr(devices, "list_devices", lambda: [row])
    monkeypatch.setattr(devices, "find", lambda spec: row)
    assert hardware.report() == 0
    assert re.search(r"opencl0:0 .*\n.*│ pocl ", capsys.readouterr().out)


def test_names_are_whole_in_80_columns(monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "80")
    name, platform = "pthread-skylake-avx512-Intel(R) Xeon(R) Processor", "Portable Computing Language"
    row = DeviceInfo("opencl1:0", profile_of(FakeDevice(name, platform)), "it fails " + 20 * "for a reason ")
    monkeypatch.setattr(devices, "list_devices", lambda: [row])
    monkeypatch.setattr(devices, "find", lambda spec: row)
    assert hardware.report() == 0
    printed = capsys.readouterr().out.partition("optdb.device=opencl selects")[0]
    assert max(map(len, printed.splitlines())) <= 80
    for word in [*name.split(), *platform.split(), "opencl1:0", "pocl"]:
        assert word in printed


def test_the_command_of_a_cure_can_be_copied_in_80_columns(monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "80")
    cure = f"install the package with the program ld; on Debian:\n    {'apt-get install binutils ' + 30 * 'x'}"
    row = DeviceInfo("opencl0:0", profile_of(FakeDevice("cpu-x", "Portable Computing Language")), "no ld", cure)
    monkeypatch.setattr(devices, "list_devices", lambda: [row])
    monkeypatch.setattr(devices, "find", lambda spec: row)
    assert hardware.report() == 0
    assert f"opencl0:0 fails: no ld\nThe cure: {cure}\n" in capsys.readouterr().out


@pytest.mark.slow
def test_a_terminal_without_unicode_shows_whole_names():
    env = {
        "PYTHONIOENCODING": "ascii",
        "PYTHONCOERCECLOCALE": "0",
        "PYTHONUTF8": "0",
        "LC_ALL": "POSIX",
        "COLUMNS": "80",
    }
    done = python("-m", "optdb", "devices", env=env)
    assert done.returncode == 0, done.stderr
    assert "..." not in done.stdout
