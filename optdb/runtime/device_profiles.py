"""Device profiles: a device's capabilities, the properties that choose its kernels, and its driver's quirks.

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

#: The kind of device that kernels are written for: 'cpu' for processors, 'gpu' for all other devices.
DeviceKind = Literal["cpu", "gpu"]
DEVICE_KINDS: tuple[DeviceKind, ...] = ("cpu", "gpu")

#: The types of devices, with the type that is likely to be fastest first.
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
    """Driver properties that no query reveals. Each is False, 0 or empty unless `KNOWN_QUIRKS` says otherwise."""

    #: The driver compiles each kernel's body several times, so bodies are moved into functions (`OUTLINED_KERNEL`).
    compiles_body_repeatedly: bool = False
    #: Launch overhead in seconds, where it exceeds the time of small kernels; plans then merge small launches.
    launch_s: float = 0.0
    #: Overhead in seconds of a launch on several cores, which have to be woken up.
    shared_launch_s: float = 0.0
    #: Time in seconds to compile a kernel in a new program, which merged launches must first save.
    kernel_compile_s: float = 0.0
    #: Overhead in seconds of a copy between buffers; small copies then share one launch.
    copy_s: float = 0.0
    #: A buffer keeps one address in all kernels, which may therefore receive the address as a number.
    keeps_addresses: bool = False
    #: Chains of small commands run as persistent launches (``device.launches``) if a trial shows that a grid barrier
    #: works. Requires `keeps_addresses`.
    persistent_launches: bool = False
    #: The compiler accepts inline NVIDIA PTX, and therefore tensor core instructions
    #: (`DeviceProfile.has_tensor_cores`).
    takes_ptx: bool = False
    #: The compiler can run in several threads at once, so a function's kernels are split into programs.
    builds_side_by_side: bool = False
    #: The compiler parses a large header before each program, unless programs declare the built-in functions that they
    #: use (``runtime.declarations``).
    parses_large_header: bool = False
    #: Scalar ops whose vector functions are wrong for some numbers (``codegen.scalars``).
    wrong_vector_functions: frozenset[str] = frozenset()
    #: The driver caches binaries itself, so optdb does not.
    keeps_binaries_itself: bool = False
    #: The device checks each memory access, which makes it slow; it is chosen last.
    is_memory_checker: bool = False
    #: The driver loads a large library again if all contexts were released; a trial's context is therefore kept.
    drops_library_with_contexts: bool = False
    #: The driver aborts the process if the program ld is not on the PATH; the device is then not tried.
    aborts_without_ld: bool = False
    #: The driver ends the process if its cache folder's disk is full; the device is then not tried.
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
    """A row in `KNOWN_QUIRKS`: a quirk, the drivers that have it, and the evidence."""

    name: str  #: A field of `DeviceQuirks`.
    reason: str  #: The observation or measurement, and the driver version.
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


#: `DeviceProfile.items_at_once` for all devices except CPU devices.
_ITEMS_AT_ONCE = 256

_pocl = functools.partial(KnownQuirk, platform="Portable Computing Language")
_oclgrind = functools.partial(KnownQuirk, platform="Oclgrind")
_nvidia = functools.partial(KnownQuirk, platform="NVIDIA CUDA")

KNOWN_QUIRKS = (
    _pocl(
        "compiles_body_repeatedly",
        "PoCL 3.1 makes three functions of a kernel and inlines the body into each: the 43 kernels of a training step "
        "of resnet50 compile in 5.3 s, and with their bodies outlined in 3.1 s",
    ),
    _pocl(
        "launch_s",
        "PoCL 3.1 takes 10 us for a launch on one core, and most kernels of a small graph run for less than 1 us",
        1e-5,
    ),
    _pocl("shared_launch_s", "PoCL 3.1 takes 20 us for a launch on several cores, since it wakes their threads", 2e-5),
    _pocl("kernel_compile_s", "PoCL 3.1 compiles a kernel for each size of groups, in 60 to 130 ms", 0.1),
    _pocl("copy_s", "PoCL 3.1 takes 3 us for a copy of few bytes", 3e-6),
    _pocl("keeps_addresses", "PoCL 3.1 runs kernels in the host's address space, and allocates a buffer once"),
    _pocl(
        "wrong_vector_functions",
        "PoCL 3.1 is wrong about sin, cos and tan of denormal floats whose neighbours are huge, and about pow of eight "
        "doubles that differ much",
        frozenset(["Sin", "Cos", "Tan", "Pow"]),
    ),
    _pocl(
        "keeps_binaries_itself",
        "PoCL 3.1 caches programs and kernels on disk; asked for a binary, it first compiles each kernel that was "
        "never launched, for 50 to 75 ms each",
    ),
    _pocl(
        "parses_large_header",
        "PoCL 3.1 has clang parse a header of 900 kB: a small program builds in 0.14 s, without the header in 0.025 s",
    ),
    _pocl(
        "drops_library_with_contexts",
        "PoCL 3.1 reads the bitcode of its built-in functions in 0.5 s, and drops it with the last context",
    ),
    _pocl(
        "aborts_without_ld",
        "PoCL 3.1 starts ld for each kernel, and calls abort() where it cannot: the process ends with status 134",
    ),
    _pocl(
        "aborts_on_full_disk",
        "PoCL 3.1 calls exit() where it cannot write an object file: LLVM ERROR: IO failure on output stream",
    ),
    _oclgrind(
        "keeps_binaries_itself", "Oclgrind 21.10 builds in 5 ms, and names lines only of a source that it has seen"
    ),
    _oclgrind(
        "keeps_addresses",
        "Oclgrind 21.10 makes an address of a buffer's number and an offset, and checks each access by it",
    ),
    _nvidia("launch_s", "NVIDIA's driver 580 takes 5.2 us of the host for a launch on an H100", 5.2e-6),
    _nvidia(
        "kernel_compile_s",
        "NVIDIA's driver 580 compiles a kernel as a part of a persistent one in 0.15 to 0.3 s: those of mlp in 2.0 s, "
        "of lstm in 4.0 s, of cifar_resnet in 5.6 s",
        0.2,
    ),
    _nvidia(
        "copy_s", "NVIDIA's driver 580 takes 10 us for a copy of few bytes on an H100, of which the event is 1 us", 1e-5
    ),
    _nvidia(
        "keeps_addresses",
        "NVIDIA's driver 580 keeps all buffers of a context on the device: a launch copied between 504 of them",
    ),
    _nvidia(
        "persistent_launches",
        "NVIDIA's driver 580 takes 2.3 us for a barrier over all groups of a launch on an H200: 47 commands of mlp "
        "become 6, a step takes 0.19 ms instead of 0.31; lstm's 4,586 become 374, 21 ms instead of 34",
    ),
    _nvidia(
        "takes_ptx",
        "NVIDIA's driver 580 compiles mma.sync, ldmatrix and cp.async in OpenCL C, though no extension says so",
    ),
    _nvidia(
        "builds_side_by_side",
        "NVIDIA's driver 580 compiles the kernels of cifar_resnet in 20.4 s as one program, in 12.3 s as eight",
    ),
    _oclgrind(
        "is_memory_checker",
        "Oclgrind 21.10 interprets kernels, hundreds of times slower than a driver, and claims to be a GPU, too",
    ),
)


@dataclass(frozen=True)
class DeviceProfile:
    """A device's capabilities, and the properties that choose its kernels."""

    driver: Driver
    device_type: str  #: The device's type, one of `DEVICE_TYPES`.
    device_kind: DeviceKind  #: The kind of device that kernels are written for. `as_kind` changes it.
    is_processor: bool  #: Whether kernels run in this process, which a fault in a kernel then ends.
    compute_units: int  #: Number of compute units over which work is divided.
    #: Number of work items that a compute unit starts at once; 0 if kernels must not rely on it. If the units start as
    #: many items as an array has elements, one element per item is fastest.
    items_at_once: int
    max_local_size: int  #: Maximum number of work items in a group.
    max_local_sizes: tuple[int, ...]  #: Maximum number of work items in a group along each dimension.
    local_memory_bytes: int  #: Local memory per group.
    global_memory_bytes: int
    max_allocation_bytes: int  #: Size of the largest buffer.
    max_parameter_bytes: int  #: Total size of a kernel's arguments.
    base_alignment_bytes: int  #: Alignment of buffers.
    float_vector_width: int  #: Number of float32 values in a vector register; 1 if there are no vector registers.
    float64: bool  #: Whether the device computes in float64.
    #: Whether the device computes in float16. float16 arrays work on every device.
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
        """The platform's common name, a key of `SHORT_NAMES`; None if it has none."""
        platform = self.platform_name.casefold()
        return next((name for name, part in SHORT_NAMES.items() if part in platform), None)

    @property
    def runs_items_serially(self) -> bool:
        """Whether a compute unit runs work items one after another, like a CPU core.

        If so, an item processes a contiguous piece of the work, and a group has one item. Otherwise, each item
        processes one element, and the items in a group share local memory.
        """
        return self.device_kind == "cpu"

    @property
    def needs_explicit_vectors(self) -> bool:
        """Whether kernels must be written with OpenCL's vector types to fill the device's vector registers."""
        return self.device_kind == "cpu"

    @property
    def writes_wrapped_arrays_directly(self) -> bool:
        """Whether kernels write directly to a wrapped host array, so that it need not be mapped afterwards."""
        return self.device_kind == "cpu"

    @property
    def reads_unaligned(self) -> bool:
        """Whether kernels may read numbers that are not aligned to `base_alignment_bytes`."""
        return self.device_kind == "cpu"

    @property
    def accumulates_in_float64(self) -> bool:
        """Whether kernels accumulate long sums of float32 in float64, which takes no longer on CPUs.

        Most other devices compute float64 at 1/64 to 1/16 of the float32 rate; there, kernels use compensated
        summation.
        """
        return self.device_kind == "cpu" and self.float64

    @property
    def has_tensor_cores(self) -> bool:
        """Whether PTX can multiply TF32 numbers on tensor cores, which NVIDIA GPUs support since Ampere."""
        capability = self.compute_capability
        return self.quirks.takes_ptx and capability is not None and capability >= (8, 0)

    @property
    def has_warpgroup_products(self) -> bool:
        """Whether kernels may use wgmma in PTX: on NVIDIA's Hopper GPUs, with drivers from version 580 on."""
        return self.quirks.takes_ptx and self.compute_capability == (9, 0) and self.driver.version_numbers >= (580,)

    @property
    def most_local_bytes(self) -> int:
        """The maximum local memory per group, in bytes.

        NVIDIA's driver reports 48 KiB for every GPU; version 580 ran kernels with 64 KiB on an H200, and 192 KiB on an
        H100.
        """
        most = (192 << 10) + 256
        return max(self.local_memory_bytes, most) if self.has_warpgroup_products else self.local_memory_bytes

    def as_kind(self, device_kind: DeviceKind, compute_units: int | None = None) -> DeviceProfile:
        """Return this profile for another kind of device; raise ValueError if there is no such kind.

        The number of compute units is unchanged unless given.
        """
        if device_kind not in DEVICE_KINDS:
            raise ValueError(f"a device kind is {' or '.join(map(repr, DEVICE_KINDS))}, not {device_kind!r}")
        units = self.compute_units if compute_units is None else compute_units
        return replace(self, device_kind=device_kind, compute_units=units)

    def for_any_driver(self, device_kind: DeviceKind, compute_units: int) -> DeviceProfile:
        """Return `as_kind` for files, without functions that some drivers lack or get wrong."""
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
    # Import locally, so that code that only reads on-disk caches can import this module without PyOpenCL.
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
