"""Finds devices that can build and run a trial kernel. Devices that are likely faster are tried first.

A string (*spec*) selects a device: ``opencl`` selects the best working device, ``opencl1:0`` selects the first device
on the second platform, ``gpu`` selects the best GPU, and ``pocl`` or ``nvidia`` selects the best device on a vendor's
platform (`SHORT_NAMES`). Any other string is searched for in the names of platforms, then in the names of devices. The
suffix ``[2/4]`` selects the second of four equal parts. PoCL gets a temporary cache folder if it cannot use its own.
"""

from __future__ import annotations

import atexit
import functools
import os
import re
import shutil
import tempfile
import textwrap
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path
from shutil import rmtree
from typing import TYPE_CHECKING, cast

import numpy as np
from platformdirs import user_cache_path

from optdb.callers import caller_level
from optdb.files import check_folder
from optdb.html_tables import HtmlTables
from optdb.runtime.device_profiles import DEVICE_TYPES, SHORT_NAMES, DeviceProfile, DeviceQuirks, profile_of
from optdb.runtime.errors import DeviceError, DeviceFault
from optdb.runtime.library import build_quietly, check_process, cl
from optdb.unknown_names import nearest
from optdb.user_cache import warn_unwritable

if TYPE_CHECKING:
    from rich.console import Group


#: The environment variable for PoCL's cache folder; PoCL reads the variable once.
_VARIABLE = "POCL_CACHE_DIR"
#: The environment variable that names PoCL's drivers; PoCL reads the variable once. The driver pthread wakes threads
#: for each launch; the driver basic runs commands in the calling thread.
_DRIVERS_VARIABLE, _DRIVERS = "POCL_DEVICES", "pthread basic"
#: The free space in bytes that PoCL needs for the object files of several kernels.
_LEAST_FREE_BYTES = 1 << 20


@dataclass(frozen=True)
class _Loan:
    """A temporary folder for PoCL, and the reason why PoCL's own folder is unusable."""

    own: Path
    error: OSError
    folder: Path  #: The temporary folder, which PoCL creates when it starts.


@functools.cache
def lend_folder() -> _Loan | None:
    """Set a temporary folder for PoCL if it cannot use its own; call this before the first use of OpenCL."""
    named = os.environ.get(_VARIABLE)
    own = Path(named).absolute() if named else user_cache_path() / "pocl"
    error = _error(own)
    if error is None:
        return None
    try:
        temporary = tempfile.mkdtemp(prefix="optdb-pocl-")
    except OSError:  # no folder is writable
        return _Loan(own, error, own)
    atexit.register(_remove, temporary, os.getpid())
    loan = _Loan(own, error, Path(temporary, "kernels"))
    os.environ[_VARIABLE] = str(loan.folder)
    return loan


def unusable_folder() -> DeviceFault | None:
    """Return why PoCL cannot cache kernels, with a fix; None if it can. Warn if PoCL uses a temporary folder."""
    loan = lend_folder()
    if loan is None:
        return None
    # If the program used OpenCL before the folder was set, PoCL uses its own folder.
    error = _error(loan.folder) if loan.folder.exists() else loan.error
    if error is None:
        warn_unwritable("PoCL's kernels", loan.own, loan.error, "builds them again", _VARIABLE)
        return None
    reason = error.strerror or error
    return DeviceFault(
        f"its kernels cannot be saved in {loan.own} ({reason})",
        f"name a folder for PoCL's kernels:\n    export {_VARIABLE}=FOLDER",
    )


def _error(folder: Path) -> OSError | None:
    existing = next(path for path in (folder, *folder.parents) if path.exists())
    try:
        check_folder(existing, _LEAST_FREE_BYTES)
    except OSError as error:
        return error
    return None


def _remove(folder: str, process: int) -> None:
    # Only the process that created the folder removes it; forked processes do not.
    if os.getpid() == process:
        rmtree(folder, ignore_errors=True)


#: Matches any string.
_SPEC = re.compile(r"(?P<device>.*?)\s*(\[(?P<part>\d+)/(?P<parts>\d+)\])?\Z", re.DOTALL)
_NUMBERED = re.compile(r"opencl\d+:\d+")

_TRIAL = """
__kernel void optdb_trial(__global int *out) {
    out[get_global_id(0)] = 40 + (int) get_global_id(0);
}
"""

#: The advice if no driver works. Lines that begin with four spaces are commands to copy.
INSTALL_DRIVER = "install your device's driver; for the processor, on Debian:\n    apt-get install pocl-opencl-icd"
#: The fault to report for drivers that start the linker, if the linker is missing.
_NO_LINKER = DeviceFault(
    "it links kernels with the program ld, which is not in the PATH",
    "install the package with the program ld; on Debian:\n    apt-get install binutils",
)

_NO_PLATFORM = (
    f"no OpenCL platform was found.\nThe cure: {INSTALL_DRIVER}\n"
    "or a memory checker, which is slow and needs no driver:\n    pip install 'optdb[oclgrind]'"
)


class SlowDeviceWarning(RuntimeWarning):
    """Warns that the only working device is a memory checker, which is hundreds of times slower than other devices."""


@dataclass(frozen=True)
class DeviceInfo:
    """A device on this machine: its capabilities, and whether it works."""

    spec: str  #: The string that selects the device.
    profile: DeviceProfile
    unsupported_reason: str | None  #: Why the device does not work; None if it works.
    cure: str | None = None  #: How to make the device work, if known.

    @property
    def works(self) -> bool:
        """Whether a kernel was built and run on the device."""
        return self.unsupported_reason is None

    platform = property(attrgetter("profile.platform_name"), doc="The name of its platform.")
    name = property(attrgetter("profile.name"), doc="Its name.")
    short_name = property(
        attrgetter("profile.short_name"), doc="The short name of its platform, from `SHORT_NAMES`; None if it has none."
    )
    kind = property(attrgetter("profile.device_type"), doc="GPU, CPU, accelerator or memory checker.")
    units = property(attrgetter("profile.compute_units"), doc="Its compute units.")
    memory = property(attrgetter("profile.global_memory_bytes"), doc="Its memory, in bytes.")


class DeviceList(HtmlTables, list[DeviceInfo]):
    """A list of devices that is displayed as the table that ``python -m optdb devices`` prints."""

    def render(self) -> Group:
        """Return the devices as a table.

        Returns
        -------
        rich.console.Group
            A table with a row for each device (memory is in GiB), and the reason for each device that does not work.
        """
        from rich.console import Group
        from rich.markup import escape
        from rich.table import Table
        from rich.text import Text

        table = Table(title="optdb: OpenCL devices", title_justify="left")
        for name in ("optdb.device", "device"):
            table.add_column(name, no_wrap=True)
        for name in ("units", "memory"):
            table.add_column(name, justify="right", no_wrap=True)
        table.add_column("state", no_wrap=True)
        for row in self:
            state = "[green]works[/]" if row.works else "[red]fails[/]"
            memory = f"{row.memory / 2**30:.1f} GiB"
            names = "\n".join(filter(None, [row.spec, row.short_name]))
            # Wrap names, so that all columns fit within 80 characters.
            texts = (row.name, f"{row.kind}, {row.platform}")
            wrap = functools.partial(textwrap.wrap, width=34, break_long_words=False, break_on_hyphens=False)
            lines = [line for text in texts for line in wrap(text)]
            table.add_row(names, escape("\n".join(lines)), str(row.units), memory, state)
        # Print fixes below the table, so that commands and paths that users copy fit on one line.
        return Group(table, *(Text(_failure(row)) for row in self if not row.works))


def driver_cure(rows: Sequence[DeviceInfo]) -> str:
    """Return how to get a device that works: apply the known fix for a device, or install another driver."""
    return next((row.cure for row in rows if row.cure is not None), INSTALL_DRIVER)


def _failure(row: DeviceInfo) -> str:
    cure = "" if row.cure is None else f"\nThe cure: {row.cure}"
    return f"{row.spec} fails: {row.unsupported_reason}{cure}"


def list_devices() -> DeviceList:
    """Try all OpenCL devices and return them in the order of their numbers.

    Returns
    -------
    DeviceList
        A list of `DeviceInfo`, empty if there are no devices.

    Raises
    ------
    DeviceError
        If the user's cache folder, where OpenCL drivers store the kernels that they build, is not writable.
    """
    return DeviceList(_tried(spec, device) for spec, device in _all())


def _tried(spec: str, device: cl.Device) -> DeviceInfo:
    profile = profile_of(device)
    reason = unsupported_reason(device)
    fault = None if reason is None else _environment_fault(profile.quirks)
    return DeviceInfo(spec, profile, reason, None if fault is None else fault.cure)


def find(spec: str) -> cl.Device:
    """Return the device that a spec selects (see the module's docstring); raise DeviceError if no such device works."""
    if not isinstance(spec, str):
        raise DeviceError(
            f"{spec!r}: a device is named by a string.\nThe cure: write its name, such as 'opencl0:0', 'pocl' or 'gpu'"
        )
    match = _SPEC.match(spec.strip())
    assert match is not None
    device = _whole(match["device"], spec)
    if match["parts"] is None:
        return device
    return _part(device, int(match["part"]), int(match["parts"]), spec)


def _whole(wanted: str, spec: str) -> cl.Device:
    is_numbered = _NUMBERED.fullmatch(wanted) is not None
    if is_numbered or wanted == "opencl":
        candidates = [device for name, device in _all() if wanted in (name, "opencl")]
    else:
        candidates = _by_name(wanted)
    if not candidates:
        raise DeviceError(f"{spec}: {_missing(wanted, is_numbered)}{_what_there_is()}")
    candidates.sort(key=lambda device: DEVICE_TYPES.index(profile_of(device).device_type))
    device = next((device for device in candidates if unsupported_reason(device) is None), None)
    if device is None:
        failure = f"{candidates[0].name.strip()} does not work: {unsupported_reason(candidates[0])}"
        raise DeviceError(f"{spec}: {failure if is_numbered else 'no such device works'}; {_what_there_is()}")
    if wanted == "opencl" and profile_of(device).quirks.is_memory_checker:
        _warn_of_memory_checker()
    return device


@functools.cache
def _warn_of_memory_checker() -> None:
    warnings.warn(
        "optdb computes on Oclgrind, the only OpenCL device that works here. It is a memory checker, hundreds of "
        "times slower than a driver.\n"
        f"The cure: {driver_cure(list_devices())}\n"
        "To check memory on purpose, name the device:\n"
        "    export THEANO_FLAGS=optdb.device=oclgrind",
        SlowDeviceWarning,
        stacklevel=caller_level(),
    )


def _missing(wanted: str, is_numbered: bool) -> str:
    if wanted == "opencl":
        return ""
    if is_numbered:
        return "there is no such device; "
    if wanted.casefold() in {kind.casefold() for kind in DEVICE_TYPES}:
        return "there is no device of this kind; "
    names = {row.short_name for row in list_devices()} - {None}
    near = nearest(wanted.casefold(), sorted(names | {"opencl"}))
    return f"no device has that name{'' if near is None else f' (did you mean {near}?)'}; "


def _by_name(wanted: str) -> list[cl.Device]:
    """Return the devices that a name selects; the first rule that matches any device applies.

    For example, ``intel`` prefers Intel's driver to other drivers for Intel processors.
    """
    wanted = wanted.casefold()
    if not wanted:
        return []
    named = []
    for _, device in _all():
        profile = profile_of(device)
        kind = profile.device_type.casefold()
        named.append((profile.name.casefold(), profile.platform_name.casefold(), kind, device))
    short = SHORT_NAMES.get(wanted, wanted)
    rules: tuple[Callable[[str, str, str], bool], ...] = (
        lambda name, platform, kind: wanted in (name, platform),
        lambda name, platform, kind: short in platform,
        lambda name, platform, kind: wanted == kind,
        lambda name, platform, kind: wanted in platform,
        lambda name, platform, kind: wanted in name,
    )
    for rule in rules:
        matching = [device for *names, device in named if rule(*names)]
        if matching:
            return matching
    return []


def _part(device: cl.Device, part: int, parts: int, spec: str) -> cl.Device:
    units = device.max_compute_units
    if not 1 <= part <= parts:
        raise DeviceError(f"{spec}: the parts are numbered [1/{parts}] to [{parts}/{parts}]")
    if parts == 1:  # the only part is the whole device, which may be indivisible
        return device
    if parts > units:
        raise DeviceError(
            f"{spec}: {device.name.strip()} has {units} compute unit(s), too few for {parts} parts.\n"
            f"The cure: divide it into at most {units} parts, as in [1/{units}]"
        )
    # PyOpenCL's type hint does not allow the values of properties.
    properties = cast("list[cl.device_partition_property]", [cl.device_partition_property.EQUALLY, units // parts])
    try:
        return device.create_sub_devices(properties)[part - 1]
    except cl.Error as error:
        raise DeviceError(
            f"{spec}: {device.name.strip()} cannot be divided ({error}).\nThe cure: omit [{part}/{parts}]"
        ) from error


def _what_there_is() -> str:
    rows = list_devices()
    if not rows:
        return _NO_PLATFORM
    lines = [f"    {_described(row)}" for row in rows]
    best = min((row for row in rows if row.works), key=lambda row: DEVICE_TYPES.index(row.kind), default=None)
    if best is None or (best.profile.quirks.is_memory_checker and any(row.cure for row in rows)):
        cure = driver_cure(rows)
    else:
        cure = f"write {best.short_name or best.spec}, or opencl, which selects the best device that works"
    return "\n".join(["there is:", *lines, f"The cure: {cure}"])


def _described(row: DeviceInfo) -> str:
    # Omit the kind 'cpu', since optdb.device=cpu selects the host.
    kind = None if row.kind == "CPU" else row.kind.casefold()
    names = ", ".join(filter(None, [row.spec, row.short_name, kind]))
    failure = "" if row.works else f" (fails: {row.unsupported_reason})"
    return f"{names}: {row.name}, {row.platform}{failure}"


def _all() -> Iterator[tuple[str, cl.Device]]:
    """Yield every device with its number; platforms without devices are numbered too."""
    check_process()
    lend_folder()
    try:
        platforms = cl.get_platforms()
    except cl.LogicError:  # the loader reports that there is no platform
        return
    for p, platform in enumerate(platforms):
        try:
            devices = platform.get_devices()
        except cl.Error:  # a driver whose hardware is missing
            continue
        others = [device for device in devices if not profile_of(device).runs_in_caller]
        for d, device in enumerate(others or devices):
            yield f"opencl{p}:{d}", device


def request_in_caller() -> None:
    """Ask PoCL for a second device, which `in_caller` returns; call this before the first use of OpenCL."""
    os.environ.setdefault(_DRIVERS_VARIABLE, _DRIVERS)


def in_caller(device: cl.Device) -> cl.Device | None:
    """Return the device on `device`'s platform that runs commands in the calling thread; None if there is none.

    This device uses one core, so a launch need not wake or await other threads. No list of devices contains this
    device.
    """
    devices = device.platform.get_devices()
    if device not in devices or profile_of(device).runs_in_caller:  # the list does not contain sub-devices
        return None
    found = next((each for each in devices if profile_of(each).runs_in_caller), None)
    return found if found is None or unsupported_reason(found) is None else None


@functools.cache
def unsupported_reason(device: cl.Device) -> str | None:
    """Return why a device does not work; None if it does.

    The trial does not use optdb's cache, because an old binary could hide that the driver cannot build kernels.
    """
    quirks = profile_of(device).quirks
    fault = _environment_fault(quirks)
    if fault is not None:
        return fault.reason
    try:
        got = _run_trial(device)
    except (cl.Error, cl.RuntimeError) as error:
        return str(error).strip().partition("\n")[0][:200]
    expected = list(range(40, 44))
    return None if got == expected else f"computed {got}, not {expected}"


def _environment_fault(quirks: DeviceQuirks) -> DeviceFault | None:
    """Return why a driver with these quirks would end the process in this environment; None if it would not."""
    if quirks.aborts_without_ld and shutil.which("ld") is None:
        return _NO_LINKER
    return unusable_folder() if quirks.aborts_on_full_disk else None


#: The contexts of trials, kept for drivers that unload a library when the last context is released.
_kept_contexts: list[cl.Context] = []


def _run_trial(device: cl.Device) -> list[int]:
    context = cl.Context([device])
    if profile_of(device).quirks.drops_library_with_contexts:
        _kept_contexts.append(context)
    queue = cl.CommandQueue(context)
    program = build_quietly(cl.Program(context, _TRIAL))
    result = np.zeros(4, np.int32)
    out = cl.Buffer(context, cl.mem_flags.READ_WRITE, result.nbytes)
    program.optdb_trial(queue, result.shape, None, out)
    cl.enqueue_copy(queue, result, out)
    values: list[int] = result.tolist()
    return values
