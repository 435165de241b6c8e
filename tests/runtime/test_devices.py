"""Devices are found by name, and an error is raised if a device is not found."""

from __future__ import annotations

import os
import re
import warnings
from pathlib import Path
from types import SimpleNamespace

import pyopencl as cl
import pytest

from optdb import files
from optdb.runtime import devices
from optdb.runtime.device_profiles import profile_of
from optdb.runtime.devices import DeviceInfo, find, list_devices
from optdb.runtime.errors import DeviceError
from tests.processes import output, run_code
from tests.runtime.fake_devices import FakeDevice

SLOW = FakeDevice("Oclgrind Simulator", "Oclgrind")
CPU = FakeDevice("Fast Processor", "Portable Language")
OLD_GPU = FakeDevice("Graphics 1", "Graphics", cl.device_type.GPU, broken="unknown target")
GPU = FakeDevice("Graphics 12", "Graphics", cl.device_type.GPU)


@pytest.fixture
def there_are(monkeypatch):
    devices._warn_of_memory_checker.cache_clear()

    def set_devices(*some):
        platforms = dict.fromkeys(device.platform.name for device in some)
        numbered = [
            (f"opencl{p}:{d}", device)
            for p, name in enumerate(platforms)
            for d, device in enumerate(device for device in some if device.platform.name == name)
        ]
        monkeypatch.setattr(devices, "_all", lambda: iter(numbered))

    monkeypatch.setattr(devices, "unsupported_reason", lambda device: device.broken)
    set_devices(SLOW, CPU, OLD_GPU, GPU)
    return set_devices


@pytest.mark.parametrize(
    ("spec", "device"),
    [
        ("opencl", GPU),
        ("opencl0:0", SLOW),
        (" opencl1:0 ", CPU),
        ("opencl2:1", GPU),
        ("processor", CPU),
        ("PORTABLE", CPU),
        ("oclgrind", SLOW),
        ("graphics", GPU),
        ("graphics 12", GPU),
        ("opencl[1/2]", "Graphics 12, 4 units, part 1"),
        ("opencl1:0[2/2]", "Fast Processor, 4 units, part 2"),
        ("processor [3/3]", "Fast Processor, 2 units, part 3"),
        ("processor[1/1]", CPU),
    ],
)
def test_find(there_are, spec, device):
    assert find(spec) == device


POCL = FakeDevice("cpu-skylake-Intel(R) Xeon(R)", "Portable Computing Language")
INTEL = FakeDevice("Intel(R) Xeon(R)", "Intel(R) OpenCL")
NVIDIA = FakeDevice("H200", "NVIDIA CUDA", cl.device_type.GPU)
AMD = FakeDevice("gfx90a", "AMD Accelerated Parallel Processing", cl.device_type.GPU)


@pytest.mark.parametrize(
    ("spec", "device"),
    [
        ("pocl", POCL),
        ("PoCL", POCL),
        ("intel", INTEL),
        ("nvidia", NVIDIA),
        ("cuda", NVIDIA),
        ("amd", AMD),
        ("rocm", AMD),
        ("oclgrind", SLOW),
        ("memory checker", SLOW),
        ("simulator", SLOW),  # a part of the device's name
        ("gpu", NVIDIA),
        ("Portable Computing Language", POCL),
        ("skylake", POCL),
        ("gpu[1/2]", "H200, 4 units, part 1"),
    ],
)
def test_short_names(there_are, spec, device):
    there_are(SLOW, POCL, INTEL, NVIDIA, AMD)
    assert find(spec) == device


def test_a_short_name_falls_back_to_a_part_of_a_name(there_are):
    there_are(SLOW, POCL)
    assert find("intel") is POCL


def test_a_near_miss_is_guessed(there_are):
    there_are(SLOW, POCL)
    with pytest.raises(DeviceError, match=re.escape("pcol: no device has that name (did you mean pocl?)")):
        find("pcol")


def test_a_memory_checker_is_no_device_to_train_on(there_are):
    devices._warn_of_memory_checker.cache_clear()
    there_are(SLOW)
    with pytest.warns(devices.SlowDeviceWarning, match="Oclgrind, the only OpenCL device.*a memory checker") as warned:
        assert find("opencl") is SLOW
        assert find("opencl") is SLOW
    assert len(warned) == 1
    devices._warn_of_memory_checker.cache_clear()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert find("oclgrind") is SLOW


def test_the_best_that_works_goes_first(there_are):
    there_are(SLOW, CPU, OLD_GPU)
    assert find("opencl") is CPU
    there_are(OLD_GPU, SLOW)
    with pytest.warns(devices.SlowDeviceWarning):
        assert find("opencl") is SLOW


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("opencl5:0", "opencl5:0: there is no such device; there is:"),
        ("opencl2:0", "opencl2:0: Graphics 1 does not work: unknown target; there is:"),
        ("graphics 1", "graphics 1: no such device works"),
        ("cuda", "cuda: no device has that name"),
        ("cu\nda", "cu\nda: no device has that name"),
        ("accelerator", "accelerator: there is no device of this kind; there is:"),
        ("", "no device has that name"),
        ("opencl[0/2]", re.escape("the parts are numbered [1/2] to [2/2]")),
        ("opencl[3/2]", re.escape("the parts are numbered [1/2] to [2/2]")),
        ("opencl[1/0]", "the parts are numbered"),
        ("opencl[1/9]", "Graphics 12 has 8 compute unit"),
    ],
)
def test_what_is_not_there(there_are, spec, message):
    with pytest.raises(DeviceError, match=message) as caught:
        find(spec)
    if "there is:" in str(caught.value):
        assert "    opencl1:0: Fast Processor, Portable Language\n" in str(caught.value)
        assert "    opencl2:0, gpu: Graphics 1, Graphics (fails: unknown target)\n" in str(caught.value)
        assert str(caught.value).endswith(
            "\nThe cure: write opencl2:1, or opencl, which selects the best device that works"
        )


def test_where_none_works_the_cure_names_none(there_are):
    there_are(OLD_GPU)
    with pytest.raises(DeviceError, match="The cure: install your device's driver"):
        find("opencl")


@pytest.mark.parametrize("spec", [3, None, ["pocl"]])
def test_a_device_is_a_text(spec):
    with pytest.raises(DeviceError, match="a device is named by a string"):
        find(spec)


@pytest.mark.parametrize("spec", ["opencl", "opencl0:0", "name"])
def test_nothing_is_there(there_are, spec):
    there_are()
    with pytest.raises(DeviceError, match=r"no OpenCL platform was found\.\nThe cure: ") as caught:
        find(spec)
    lines = str(caught.value).splitlines()
    assert {"    apt-get install pocl-opencl-icd", "    pip install 'optdb[oclgrind]'"} <= set(lines)


def test_rows(there_are):
    assert list_devices()[2] == DeviceInfo("opencl2:0", profile_of(OLD_GPU), "unknown target")
    shown = [
        (row.platform, row.name, row.kind, row.units, row.memory, row.unsupported_reason) for row in list_devices()
    ]
    assert shown[2] == ("Graphics", "Graphics 1", "GPU", 8, 2**30, "unknown target")
    assert [row.works for row in list_devices()] == [True, True, False, True]
    assert [row.kind for row in list_devices()] == ["memory checker", "CPU", "GPU", "GPU"]


# The machine's own devices


def test_here():
    rows = list_devices()
    assert any(row.works for row in rows)
    best = find("opencl")
    for row in rows:
        if row.works:
            assert find(row.spec).name.strip() == row.name
            assert row.name in [find(row.name).name.strip(), best.name.strip()]
    if any(row.works and row.kind == "CPU" for row in rows):
        assert "oclgrind" not in best.platform.name.casefold()


def test_parts_here():
    whole = find("opencl")
    if whole.max_compute_units < 2 or not any(whole.partition_properties):
        with pytest.raises(DeviceError, match=re.escape("[1/2]")):
            find("opencl[1/2]")
        return
    parts = [find(f"opencl[{i}/2]") for i in (1, 2)]
    assert [part.max_compute_units for part in parts] == [whole.max_compute_units // 2] * 2


def test_a_device_that_cannot_build(monkeypatch):
    monkeypatch.setattr(devices, "_TRIAL", "__kernel void optdb_trial(__global int *out) { nonsense; }")
    assert devices.unsupported_reason.__wrapped__(find("opencl"))


def test_a_device_that_computes_nonsense(monkeypatch):
    monkeypatch.setattr(devices, "_TRIAL", devices._TRIAL.replace("40", "50"))
    assert devices.unsupported_reason.__wrapped__(find("opencl")) == "computed [50, 51, 52, 53], not [40, 41, 42, 43]"


NO_DRIVER = {"OCL_ICD_VENDORS": "/nonexistent", "OPENCL_VENDOR_PATH": "/nonexistent"}
WITHOUT_PYOPENCL = "import sys; sys.modules['pyopencl'] = None\n"


def test_no_driver():
    done = run_code("from optdb.runtime.context import Context; Context('opencl')", env=NO_DRIVER)
    assert "DeviceError: opencl: no OpenCL platform was found.\nThe cure: " in done.stderr


def test_no_pyopencl():
    done = run_code(WITHOUT_PYOPENCL + "import optdb.runtime; print('fine'); import optdb.runtime.context")
    assert done.stdout == "fine\n"
    assert "DeviceError: OpenCL needs PyOpenCL" in done.stderr
    assert done.stderr.strip().endswith("The cure: pip install 'optdb[opencl]'")


def test_the_runtime_needs_neither_theano_nor_the_rest_of_optdb():
    code = """
        import sys
        import optdb.runtime.context, optdb.runtime.arrays, optdb.runtime.devices
        print("theano" in sys.modules)
        print(*sorted({name.split(".")[1] for name in sys.modules if name.startswith("optdb.")}))
    """
    modules = "callers composition files html_tables numpy_types runtime trace_log unknown_names user_cache"
    assert output(code) == f"False\n{modules}"


@pytest.mark.slow
@pytest.mark.parametrize("variable", ["XDG_CACHE_HOME", "POCL_CACHE_DIR"])
def test_pocl_gets_a_temporary_folder_where_its_own_cannot_be_written(variable, tmp_path):
    code = """
        import os
        from optdb.runtime.devices import list_devices

        print(*(row.works for row in list_devices() if row.short_name == "pocl"))
        print(os.environ["POCL_CACHE_DIR"])
    """
    done = run_code(code, env={"POCL_CACHE_DIR": "", variable: "/proc/none", "TMPDIR": str(tmp_path)})
    works, folder = done.stdout.splitlines()
    assert works == "True", done.stderr
    assert Path(folder).is_relative_to(tmp_path)
    assert not any(tmp_path.iterdir())  # removed with the process
    assert done.stderr.count("The cure:") == 1
    assert "PoCL's kernels cannot be saved in /proc/none" in done.stderr
    assert "export POCL_CACHE_DIR=FOLDER" in done.stderr


@pytest.fixture
def full_folder(monkeypatch, tmp_path):
    monkeypatch.setenv("POCL_CACHE_DIR", str(tmp_path / "new"))
    monkeypatch.setattr(files, "disk_usage", lambda path: SimpleNamespace(free=4096))
    devices.lend_folder.cache_clear()
    yield tmp_path / "new"
    devices.lend_folder.cache_clear()


@pytest.mark.parametrize("starts", [True, False], ids=["no room elsewhere", "began before"])
def test_a_device_that_fills_its_folder_is_not_tried(monkeypatch, full_folder, starts):
    aborting = FakeDevice("Processor", "Portable Computing Language")
    monkeypatch.setattr(devices, "_run_trial", lambda device: pytest.fail("tried"))
    loan = devices.lend_folder()
    assert os.environ["POCL_CACHE_DIR"] == str(loan.folder)
    if starts:
        loan.folder.mkdir()
    reason = devices.unsupported_reason.__wrapped__(aborting)
    assert f"its kernels cannot be saved in {full_folder} (No space left on device)" in reason
    assert devices.unusable_folder().cure.endswith("\n    export POCL_CACHE_DIR=FOLDER")


def test_no_folder_is_lent_where_none_can_be_written(monkeypatch, full_folder):
    def refuse(**options):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(devices.tempfile, "mkdtemp", refuse)
    assert "(No space left on device)" in devices.unusable_folder().reason
    assert os.environ["POCL_CACHE_DIR"] == str(full_folder)


def test_a_device_that_would_end_the_process_is_not_tried(monkeypatch):
    aborting = FakeDevice("Processor", "Portable Computing Language")
    monkeypatch.setattr(devices, "_run_trial", lambda device: pytest.fail("tried"))
    monkeypatch.setattr(devices.shutil, "which", lambda program: None)
    monkeypatch.setattr(devices, "_all", lambda: iter([("opencl0:0", aborting)]))
    assert "ld, which is not in the PATH" in devices.unsupported_reason(aborting)
    [row] = rows = list_devices()
    assert row.cure.endswith("apt-get install binutils")
    assert devices.driver_cure(rows) == row.cure
    assert str(rows.render().renderables[-1]).endswith(f"PATH\nThe cure: {row.cure}")
    with pytest.raises(DeviceError, match=r"\(fails: it links .*\)\nThe cure: .*\n    apt-get install binutils$"):
        find("opencl")


def test_without_ld_devices_are_listed(tmp_path):
    listing = "from optdb.runtime.devices import list_devices; print([row.works for row in list_devices()])"
    done = run_code(listing, env={"PATH": str(tmp_path)})
    assert done.returncode == 0, done.stderr


def test_the_context_of_a_trial_is_kept_where_its_driver_drops_a_library_with_the_last_one(monkeypatch):
    kept = []
    monkeypatch.setattr(devices, "_kept_contexts", kept)
    for row in (row for row in list_devices() if row.works):
        device = find(row.spec)
        del kept[:]
        devices._run_trial(device)
        assert bool(kept) is profile_of(device).quirks.drops_library_with_contexts


IN_CALLER = """
from optdb.runtime.devices import find, in_caller, list_devices, request_in_caller
before = os.environ.get("POCL_DEVICES")
request_in_caller()
rows = list_devices()
print(before, os.environ["POCL_DEVICES"])
print(sum(row.name.startswith(("basic", "cpu-minimal")) for row in rows), sum(row.short_name == "pocl" for row in rows))
device = find("pocl")
other = in_caller(device)
print(None if other is None else (other.max_compute_units, other != device))
print(None if other is None else in_caller(other))
if device.max_compute_units > 1:
    print(in_caller(find("pocl[1/2]")))
"""


@pytest.mark.parametrize(("chosen", "found"), [(None, "(1, True)"), ("pthread", "None")])
def test_a_device_that_runs_commands_in_the_calling_thread(chosen, found):
    if not any(row.short_name == "pocl" and row.works for row in list_devices()):
        pytest.skip("PoCL is not installed")
    env = {} if chosen is None else {"POCL_DEVICES": chosen}
    code = f"import os\nos.environ.pop('POCL_DEVICES', None)\nos.environ.update({env!r})\n{IN_CALLER}"
    variables, counts, other, *others = run_code(code).stdout.splitlines()
    assert variables == f"{chosen} {chosen or 'pthread basic'}"
    assert counts == "0 1"
    assert other == found
    assert set(others) == {"None"}


def test_a_device_in_the_calling_thread_is_listed_if_it_is_the_only_one(monkeypatch):
    platform = SimpleNamespace(name="Portable Computing Language", version="OpenCL 3.0")
    threads, caller = (FakeDevice(f"{kind}-x86", platform.name) for kind in ("pthread", "basic"))
    for some, listed in (([caller, threads], [threads]), ([caller], [caller])):
        platform.get_devices = lambda some=some: some
        monkeypatch.setattr(devices.cl, "get_platforms", lambda: [platform])
        assert [device for _, device in devices._all()] == listed
