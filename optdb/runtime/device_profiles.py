"""Device profiles: a device's capabilities, the properties that select its kernels, and its driver's quirks.

:func:`profile_of` creates a :class:`DeviceProfile` from the driver's reports and from `KNOWN_QUIRKS`. Only this file
inspects the names of platforms, vendors and drivers, and the kind of a device. To add a quirk, add a field to
:class:`DeviceQuirks`, a row to `KNOWN_QUIRKS` and a test.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from optdb.runtime.library import cl

#: The kind of device that kernels are written for: 'cpu' for CPUs, 'gpu' for all other devices.
DeviceKind = Literal["cpu", "gpu"]
DEVICE_KINDS: tuple[DeviceKind, ...] = ("cpu", "gpu")

#: The types of devices, in order of likely speed, fastest first.
DEVICE_TYPES = ("GPU", "accelerator", "CPU", "memory checker")

#: Maps a driver's common name to a part of its platform's name.
SHORT_NAMES = {
    "pocl": "portable computing language",
    "nvidia": "nvidia",
    "cuda": "nvidia cuda",
    "amd": "amd accelerated parallel processing",
    "rocm": "amd accelerated parallel processing",
    "intel": "intel(r) opencl",
    "apple": "apple",
    "rusticl": "rusticl",
    "clover": "clover",
    "oclgrind": "oclgrind",
}


@dataclass(frozen=True)
class DeviceQuirks:
    """Driver properties that no query reveals; False, 0 or empty unless `KNOWN_QUIRKS` sets them."""

    #: The driver compiles a kernel's body several times, so bodies are moved into functions (`OUTLINED_KERNEL`).
    compiles_body_repeatedly: bool = False
    #: Launch overhead in seconds, if it exceeds the run time of small kernels; plans then merge small launches.
    launch_s: float = 0.0
    #: Overhead in seconds of a launch on several cores, which must be woken up.
    shared_launch_s: float = 0.0
    #: Seconds to compile a kernel in a new program; merged launches must save this time over several calls.
    kernel_compile_s: float = 0.0
    #: Overhead in seconds of a copy between buffers; if this is not 0, small copies share a launch.
    copy_s: float = 0.0
    #: A buffer has the same address in all kernels, so kernels may receive the address as a number.
    keeps_addresses: bool = False
    #: Chains of small commands become persistent launches (``device.launches``) if a trial finds a grid barrier that
    #: works. Requires `keeps_addresses`.
    persistent_launches: bool = False
    #: The compiler accepts inline NVIDIA PTX, and thus tensor core instructions (`DeviceProfile.has_tensor_cores`).
    takes_ptx: bool = False
    #: The compiler can run in several threads, so a function's kernels are split into several programs.
    builds_side_by_side: bool = False
    #: The compiler parses a large header before each program, so programs declare the built-in functions that they use
    #: (``runtime.declarations``).
    parses_large_header: bool = False
    #: Scalar ops whose vector functions are wrong for some numbers (``codegen.scalars``).
    wrong_vector_functions: frozenset[str] = frozenset()
    #: The driver caches binaries itself, so optdb does not.
    keeps_binaries_itself: bool = False
    #: The device checks each memory access and is therefore slow, so it is chosen last.
    is_memory_checker: bool = False
    #: After all contexts have been released, the driver must reload a large library, so the context of a trial is kept.
    drops_library_with_contexts: bool = False
    #: The driver aborts the process if the program ld is not on the PATH; in that case, the device is not tried.
    aborts_without_ld: bool = False
    #: The driver ends the process if the disk that holds its cache folder is full; in that case, the device is not
    #: tried.
    aborts_on_full_disk: bool = False


@dataclass(frozen=True)
class Driver:
    """The names and versions that a device and its driver report, unchanged."""

    platform: str
    platform_version: str
    device: str
    vendor: str
    device_version: str
    version: str  #: The driver's version.

    @property
    def version_numbers(self) -> tuple[int, ...]:
        """The leading numbers of the driver's version; empty if there are none."""
        match = re.match(r"\s*(\d+(?:\.\d+)*)", self.version)
        return tuple(map(int, match[1].split("."))) if match else ()


@dataclass(frozen=True)
class KnownQuirk:
    """A row in `KNOWN_QUIRKS`: a quirk, the drivers that have it, and the reason."""

    name: str  #: A field of `DeviceQuirks`.
    reason: str  #: The observation or measurement that shows the quirk, and the driver's version.
    value: bool | float | frozenset[str] = True  #: The field's value.
    platform: str = ""  #: A part of the platform's name, case-insensitive; empty for all platforms.
    vendor: str = ""  #: A part of the vendor's name, case-insensitive; empty for all vendors.
    fixed_in: tuple[int, ...] | None = None  #: The first driver version without the quirk.

    def applies_to(self, driver: Driver) -> bool:
        if self.platform.casefold() not in driver.platform.casefold():
            return False
        if self.vendor.casefold() not in driver.vendor.casefold():
            return False
        return self.fixed_in is None or driver.version_numbers < self.fixed_in


#: The value of `DeviceProfile.items_at_once` for devices that are not CPUs.
_ITEMS_AT_ONCE = 256

_pocl = functools.partial(KnownQuirk, platform="Portable Computing Language")
_oclgrind = functools.partial(KnownQuirk, platform="Oclgrind")
_nvidia = functools.partial(KnownQuirk, platform="NVIDIA CUDA")

KNOWN_QUIRKS = (
    _pocl(
        "compiles_body_repeatedly",
        "PoCL 3.1 makes three functions from a kernel and inlines the body into each: the 43 kernels of a training "
        "step of resnet50 compile in 5.3 s, but in 3.1 s if their bodies are outlined",
    ),
    _pocl(
        "launch_s",
        "PoCL 3.1 takes 10 us for a launch on one core, but most kernels of a small graph run for less than 1 us",
        1e-5,
    ),
    _pocl("shared_launch_s", "PoCL 3.1 takes 20 us for a launch on several cores, since it wakes their threads", 2e-5),
    _pocl("kernel_compile_s", "PoCL 3.1 compiles a kernel for each group size, in 60 to 130 ms", 0.1),
    _pocl("copy_s", "PoCL 3.1 takes 3 us to copy a few bytes", 3e-6),
    _pocl("keeps_addresses", "PoCL 3.1 runs kernels in the host's address space and never moves a buffer"),
    _pocl(
        "wrong_vector_functions",
        "PoCL 3.1 computes wrong vectors of sin, cos and tan if some floats are denormal and others huge",
        frozenset(["Sin", "Cos", "Tan"]),
    ),
    _pocl(
        "keeps_binaries_itself",
        "PoCL 3.1 caches programs and kernels on disk; when asked for a binary, it first compiles each kernel that "
        "was never launched, in 50 to 75 ms",
    ),
    _pocl(
        "parses_large_header",
        "PoCL 3.1 makes clang parse a 900 kB header: a small program builds in 0.14 s, and in 0.025 s without it",
    ),
    _pocl(
        "drops_library_with_contexts",
        "PoCL 3.1 takes 0.5 s to read the bitcode of its built-in functions, and drops it with the last context",
    ),
    _pocl(
        "aborts_without_ld",
        "PoCL 3.1 starts ld for each kernel, and calls abort() if that fails: the process ends with status 134",
    ),
    _pocl(
        "aborts_on_full_disk",
        "PoCL 3.1 calls exit() if it cannot write an object file: LLVM ERROR: IO failure on output stream",
    ),
    _oclgrind("keeps_binaries_itself", "Oclgrind 21.10 builds in 5 ms, and names lines only if it built the source"),
    _oclgrind(
        "keeps_addresses",
        "Oclgrind 21.10 forms addresses from a buffer's number and an offset, by which it checks each access",
    ),
    _nvidia("launch_s", "NVIDIA's driver 580 takes 5.2 us on the host for a launch on an H100", 5.2e-6),
    _nvidia(
        "kernel_compile_s",
        "NVIDIA's driver 580 takes 0.15 to 0.3 s to compile a kernel as a part of a persistent one: 2.0 s for all "
        "kernels of mlp, 4.0 s for lstm, 5.6 s for cifar_resnet",
        0.2,
    ),
    _nvidia(
        "copy_s", "NVIDIA's driver 580 takes 10 us to copy a few bytes on an H100, of which 1 us is the event", 1e-5
    ),
    _nvidia(
        "keeps_addresses",
        "NVIDIA's driver 580 keeps all buffers of a context on the device: one launch copied between 504 of them",
    ),
    _nvidia(
        "persistent_launches",
        "NVIDIA's driver 580 takes 2.3 us for a barrier over all groups of a launch on an H200: the 47 commands of mlp "
        "become 6, and a step takes 0.19 ms instead of 0.31 ms; the 4,586 commands of lstm become 374, and a step "
        "takes 21 ms instead of 34 ms",
    ),
    _nvidia(
        "takes_ptx",
        "NVIDIA's driver 580 compiles mma.sync, ldmatrix and cp.async in OpenCL C, although it lists no extension",
    ),
    _nvidia(
        "builds_side_by_side",
        "NVIDIA's driver 580 compiles the kernels of cifar_resnet in 20.4 s as one program, and in 12.3 s as eight",
    ),
    _oclgrind(
        "is_memory_checker",
        "Oclgrind 21.10 interprets kernels, hundreds of times slower than a driver, but reports that it is a GPU",
    ),
)


@dataclass(frozen=True)
class DeviceProfile:
    """A device's capabilities, and the properties that select its kernels."""

    driver: Driver
    device_type: str  #: The device's type, one of `DEVICE_TYPES`.
    device_kind: DeviceKind  #: The kind of device that kernels are written for. `as_kind` changes it.
    is_processor: bool  #: Whether kernels run in this process, so that a fault in a kernel ends the process.
    compute_units: int  #: Number of compute units over which work is divided.
    #: The number of work items that a compute unit starts at once; 0 if kernels must not rely on this number. If all
    #: units together can start as many items as an array has elements, one element per item is fastest.
    items_at_once: int
    max_local_size: int  #: Maximum number of work items in a group.
    max_local_sizes: tuple[int, ...]  #: Maximum number of work items in a group along each dimension.
    local_memory_bytes: int  #: Local memory per group.
    global_memory_bytes: int
    max_allocation_bytes: int  #: Maximum size of a buffer.
    max_parameter_bytes: int  #: Maximum total size of a kernel's arguments.
    base_alignment_bytes: int  #: Alignment of buffers.
    float_vector_width: int  #: Number of float32 values in a vector register; 1 if there are no vector registers.
    float64: bool  #: Whether the device computes in float64.
    #: Whether the device computes in float16. Every device supports float16 arrays.
    float16: bool
    int64: bool
    shares_host_memory: bool  #: Whether the device uses the host's memory.
    subgroups: bool  #: Whether the driver has the extension cl_khr_subgroups.
    #: The compute capability of an NVIDIA GPU; None for other devices.
    compute_capability: tuple[int, int] | None
    quirks: DeviceQuirks

    @property
    def name(self) -> str:
        return self.driver.device.strip()

    @property
    def platform_name(self) -> str:
        return self.driver.platform.strip()

    @property
    def short_name(self) -> str | None:
        """The platform's common name, which is a key of `SHORT_NAMES`; None if the platform has no common name."""
        platform = self.platform_name.casefold()
        return next((name for name, part in SHORT_NAMES.items() if part in platform), None)

    @property
    def runs_in_caller(self) -> bool:
        """Whether the driver runs commands in the calling thread, as PoCL's drivers basic and cpu-minimal do."""
        return self.short_name == "pocl" and self.name.startswith(("basic", "cpu-minimal"))

    @property
    def runs_items_serially(self) -> bool:
        """Whether a compute unit runs work items one after another, like a CPU core.

        On such devices, a work item processes a contiguous range of elements, and a group has one item. On other
        devices, each item processes one element, and the items in a group share local memory.
        """
        return self.device_kind == "cpu"

    @property
    def needs_explicit_vectors(self) -> bool:
        """Whether kernels must use OpenCL's vector types to fill the device's vector registers."""
        return self.device_kind == "cpu"

    @property
    def writes_wrapped_arrays_directly(self) -> bool:
        """Whether kernels write directly to a wrapped host array, so that it need not be mapped."""
        return self.device_kind == "cpu"

    @property
    def reads_unaligned(self) -> bool:
        """Whether kernels may read numbers that are not aligned to `base_alignment_bytes`."""
        return self.device_kind == "cpu"

    @property
    def accumulates_in_float64(self) -> bool:
        """Whether kernels accumulate long float32 sums in float64, which is as fast as float32 on CPUs.

        Most other devices compute float64 at 1/64 to 1/16 of the float32 rate; there, kernels use compensated
        summation.
        """
        return self.device_kind == "cpu" and self.float64

    @property
    def has_tensor_cores(self) -> bool:
        """Whether PTX can multiply TF32 numbers on tensor cores, which all NVIDIA GPUs since Ampere support."""
        capability = self.compute_capability
        return self.quirks.takes_ptx and capability is not None and capability >= (8, 0)

    @property
    def has_warpgroup_products(self) -> bool:
        """Whether kernels may use wgmma in PTX, which requires an NVIDIA Hopper GPU and driver version 580 or later."""
        return self.quirks.takes_ptx and self.compute_capability == (9, 0) and self.driver.version_numbers >= (580,)

    @property
    def most_local_bytes(self) -> int:
        """The maximum local memory per group, in bytes.

        NVIDIA's driver reports 48 KiB for every GPU; version 580 ran kernels with 200 KiB on an H200.
        """
        most = (200 << 10) + 512
        return max(self.local_memory_bytes, most) if self.has_warpgroup_products else self.local_memory_bytes

    def as_kind(self, device_kind: DeviceKind, compute_units: int | None = None) -> DeviceProfile:
        """Return a copy of this profile for another kind of device; raise ValueError for an unknown kind.

        The number of compute units stays the same unless `compute_units` is given.
        """
        if device_kind not in DEVICE_KINDS:
            raise ValueError(f"a device kind is {' or '.join(map(repr, DEVICE_KINDS))}, not {device_kind!r}")
        units = self.compute_units if compute_units is None else compute_units
        return replace(self, device_kind=device_kind, compute_units=units)

    def for_any_driver(self, device_kind: DeviceKind, compute_units: int) -> DeviceProfile:
        """Return a copy of this profile for an exported file, without functions that some drivers lack or get wrong."""
        known = [quirk.value for quirk in KNOWN_QUIRKS if quirk.name == "wrong_vector_functions"]
        wrong = frozenset(name for value in known if isinstance(value, frozenset) for name in value)
        quirks = replace(self.quirks, wrong_vector_functions=wrong, takes_ptx=False)
        return replace(self.as_kind(device_kind, compute_units), items_at_once=0, quirks=quirks)

    def reasons(self) -> dict[str, str]:
        """Return the reason for each of the profile's quirks, keyed by the quirk's name."""
        return {quirk.name: quirk.reason for quirk in KNOWN_QUIRKS if quirk.applies_to(self.driver)}


@functools.cache
def profile_of(device: cl.Device) -> DeviceProfile:
    """Return a device's profile, creating it on first use."""
    # Code that only reads on-disk caches imports this module without PyOpenCL.
    from optdb.runtime.library import cl

    platform = device.platform
    driver = Driver(platform.name, platform.version, device.name, device.vendor, device.version, device.driver_version)
    quirks = quirks_of(driver)
    extensions = frozenset(device.extensions.split())
    is_processor, is_gpu = (bool(device.type & kind) for kind in (cl.device_type.CPU, cl.device_type.GPU))
    device_type = "GPU" if is_gpu else "CPU" if is_processor else "accelerator"
    return DeviceProfile(
        driver=driver,
        device_type="memory checker" if quirks.is_memory_checker else device_type,
        device_kind="cpu" if is_processor else "gpu",
        is_processor=is_processor,
        compute_units=device.max_compute_units,
        items_at_once=0 if is_processor else _ITEMS_AT_ONCE,
        max_local_size=device.max_work_group_size,
        max_local_sizes=tuple(device.max_work_item_sizes),
        local_memory_bytes=device.local_mem_size,
        global_memory_bytes=device.global_mem_size,
        max_allocation_bytes=device.max_mem_alloc_size,
        max_parameter_bytes=device.max_parameter_size,
        base_alignment_bytes=device.mem_base_addr_align // 8,
        float_vector_width=device.native_vector_width_float,
        float64="cl_khr_fp64" in extensions,
        float16="cl_khr_fp16" in extensions,
        # Only OpenCL's embedded profile may lack 64-bit integers.
        int64="EMBEDDED" not in device.profile or "cles_khr_int64" in extensions,
        shares_host_memory=bool(device.host_unified_memory),
        subgroups="cl_khr_subgroups" in extensions,
        compute_capability=(
            (device.compute_capability_major_nv, device.compute_capability_minor_nv)
            if "cl_nv_device_attribute_query" in extensions
            else None
        ),
        quirks=quirks,
    )


def quirks_of(driver: Driver, known: Sequence[KnownQuirk] = KNOWN_QUIRKS) -> DeviceQuirks:
    """Return the quirks that a table lists for a driver."""
    values: dict[str, Any] = {quirk.name: quirk.value for quirk in known if quirk.applies_to(driver)}
    return DeviceQuirks(**values)
