"""Device profiles contain what drivers report, and quirks by name and version; no other module reads names."""

from __future__ import annotations

import ast
from dataclasses import fields, replace
from pathlib import Path

import pyopencl as cl
import pytest

from optdb.runtime import device_profiles
from optdb.runtime.context import Context
from optdb.runtime.device_profiles import (
    KNOWN_QUIRKS,
    SHORT_NAMES,
    DeviceQuirks,
    Driver,
    KnownQuirk,
    profile_of,
    quirks_of,
)
from tests.runtime.fake_devices import FakeDevice

OPTDB = Path(device_profiles.__file__).parents[1]

DRIVER = Driver("NVIDIA CUDA", "OpenCL 3.0 CUDA", "H100", "NVIDIA Corporation", "OpenCL 3.0", "580.65.06")


def test_what_a_driver_reports():
    device = FakeDevice(
        *(" Card ", "Graphics "),
        kind=cl.device_type.GPU,
        units=132,
        extensions="cl_khr_fp16 cl_khr_subgroups",
        host_unified_memory=0,
        max_work_item_sizes=[1024, 512, 64],
        mem_base_addr_align=4096,
    )
    profile = profile_of(device)
    assert profile is profile_of(device)
    assert (profile.name, profile.platform_name, profile.short_name) == ("Card", "Graphics", None)
    assert (profile.device_type, profile.device_kind, profile.is_processor) == ("GPU", "gpu", False)
    assert (profile.compute_units, profile.max_local_sizes) == (132, (1024, 512, 64))
    assert profile.base_alignment_bytes == 512
    assert (profile.float64, profile.float16, profile.int64) == (False, True, True)
    assert (profile.subgroups, profile.shares_host_memory) == (True, False)
    assert profile.quirks == DeviceQuirks()
    assert profile.reasons() == {}


@pytest.mark.parametrize(
    ("kind", "device_type", "device_kind"),
    [
        (cl.device_type.CPU, "CPU", "cpu"),
        (cl.device_type.GPU, "GPU", "gpu"),
        (cl.device_type.ACCELERATOR, "accelerator", "gpu"),
    ],
)
def test_kinds(kind, device_type, device_kind):
    profile = profile_of(FakeDevice("x", kind=kind))
    assert (profile.device_type, profile.device_kind) == (device_type, device_kind)


@pytest.mark.parametrize(("extensions", "int64"), [("", False), ("cles_khr_int64", True)])
def test_the_embedded_profile_may_lack_int64(extensions, int64):
    assert profile_of(FakeDevice("x", profile="EMBEDDED_PROFILE", extensions=extensions)).int64 is int64


def test_pocl():
    quirks = profile_of(FakeDevice("cpu-x", "Portable Computing Language")).quirks
    assert quirks == DeviceQuirks(
        compiles_body_repeatedly=True,
        launch_s=1e-5,
        shared_launch_s=2e-5,
        kernel_compile_s=0.1,
        copy_s=3e-6,
        keeps_addresses=True,
        wrong_vector_functions=frozenset(["Sin", "Cos", "Tan"]),
        keeps_binaries_itself=True,
        parses_large_header=True,
        drops_library_with_contexts=True,
        aborts_without_ld=True,
        aborts_on_full_disk=True,
    )


def test_kernels_of_a_file_avoid_what_any_driver_has_wrong():
    profile = profile_of(FakeDevice("cpu-x", "Some Platform"))
    assert not profile.quirks.wrong_vector_functions
    for_files = profile.for_any_driver("cpu", 8)
    assert for_files.quirks.wrong_vector_functions == {"Sin", "Cos", "Tan"}
    assert (for_files.device_kind, for_files.compute_units) == ("cpu", 8)


def test_oclgrind():
    profile = profile_of(FakeDevice("Oclgrind Simulator", "Oclgrind", kind=15))
    assert profile.quirks == DeviceQuirks(keeps_binaries_itself=True, is_memory_checker=True, keeps_addresses=True)
    assert (profile.device_type, profile.device_kind) == ("memory checker", "cpu")
    assert "names lines only if it built the source" in profile.reasons()["keeps_binaries_itself"]


def test_nvidia():
    quirks = profile_of(FakeDevice("NVIDIA H100 80GB HBM3", "NVIDIA CUDA")).quirks
    costs = {"launch_s": 5.2e-6, "kernel_compile_s": 0.2, "copy_s": 1e-5}
    assert quirks == DeviceQuirks(
        **costs, keeps_addresses=True, persistent_launches=True, takes_ptx=True, builds_side_by_side=True
    )


def test_the_device_here():
    context = Context("opencl")
    assert context.profile == profile_of(context.device)
    assert context.profile.name == context.device.name.strip()
    assert context.profile.compute_units == context.device.max_compute_units


# Other kinds


def test_the_kernels_of_another_kind():
    profile = profile_of(FakeDevice("x"))
    assert profile.runs_items_serially and profile.needs_explicit_vectors
    gpu = profile.as_kind("gpu")
    assert gpu == replace(profile, device_kind="gpu")
    assert not (gpu.runs_items_serially or gpu.needs_explicit_vectors or gpu.reads_unaligned)
    assert not gpu.writes_wrapped_arrays_directly
    assert gpu.is_processor
    assert profile.as_kind("gpu", 64).compute_units == 64
    with pytest.raises(ValueError, match="a device kind is 'cpu' or 'gpu', not 'tpu'"):
        profile.as_kind("tpu")


# Quirks


@pytest.mark.parametrize(
    ("row", "applies"),
    [
        ({}, True),
        ({"platform": "nvidia"}, True),
        ({"platform": "nvidia", "vendor": "NVIDIA corp"}, True),
        ({"platform": "portable"}, False),
        ({"vendor": "Intel"}, False),
        ({"fixed_in": (581,)}, True),
        ({"fixed_in": (580, 65, 7)}, True),
        ({"fixed_in": (580, 65, 6)}, False),
        ({"fixed_in": (580,)}, False),
    ],
)
def test_to_which_drivers_a_quirk_applies(row, applies):
    known = [KnownQuirk("launch_s", "seen", 3e-5, **row)]
    assert known[0].applies_to(DRIVER) is applies
    assert quirks_of(DRIVER, known) == DeviceQuirks(launch_s=3e-5 if applies else 0.0)


@pytest.mark.parametrize(
    ("version", "numbers"), [("3.1+debian", (3, 1)), ("580.65.06", (580, 65, 6)), ("Oclgrind 21.10", ()), ("", ())]
)
def test_versions(version, numbers):
    assert replace(DRIVER, version=version).version_numbers == numbers


def test_the_table_is_of_quirks_that_there_are_each_with_a_reason():
    names = {field.name for field in fields(DeviceQuirks)}
    assert {quirk.name for quirk in KNOWN_QUIRKS} == names
    assert all(quirk.reason and (quirk.platform or quirk.vendor) for quirk in KNOWN_QUIRKS)


# Where names may be read

ASKED = frozenset(["device_type", "driver_version", "vendor", "vendor_id"])
NAMES = frozenset([*SHORT_NAMES, *SHORT_NAMES.values()])


def asked_names(source):
    """Yield the lines of a module that query a device's type or a driver's names, or that compare a driver's name."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Attribute) and node.attr in ASKED:
            if not ast.unparse(node.value).endswith(("profile", "profile_of(device)")):
                yield node.lineno
        elif isinstance(node, ast.Attribute) and node.attr == "name" and ast.unparse(node.value).endswith("platform"):
            yield node.lineno
        elif isinstance(node, ast.Compare):
            texts = [x.value for x in ast.walk(node) if isinstance(x, ast.Constant) and isinstance(x.value, str)]
            if NAMES.intersection(map(str.casefold, texts)):
                yield node.lineno


@pytest.mark.parametrize(
    "source",
    [
        "device.platform.name.strip() == 'x'",
        "'oclgrind' in name.casefold()",
        "name in ('Portable Computing Language', 'x')",
        "device.type & cl.device_type.CPU",
        "device.vendor",
    ],
)
def test_what_asks_for_names_is_found(source):
    assert list(asked_names(source)) == [1]


@pytest.mark.slow
def test_no_other_file_asks_for_a_platforms_or_vendors_name():
    found = {
        f"{path.relative_to(OPTDB)}:{line}"
        for path in OPTDB.rglob("*.py")
        if path.name != "device_profiles.py" and "host" not in path.relative_to(OPTDB).parts
        for line in asked_names(path.read_text())
    }
    assert found == set()
