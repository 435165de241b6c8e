"""Finds devices that work.

A device that is listed need not work: drivers list processors that their compiler does not
know. So a device counts once a kernel was built and run on it (`trouble`), and the search
goes from the likely best to the likely worst.

A user says which device is meant by a text (*spec*): ``opencl`` is the best one that works,
``opencl1:0`` the first device of the second platform, any other text is looked for in the
devices' names. ``[2/4]`` behind any of these is the second of four equal parts of it.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from optdb.runtime.errors import DeviceError
from optdb.runtime.library import check_process, cl, compilers_unheard

__all__ = ["DeviceError", "Row", "find", "list_devices", "trouble"]

_SPEC = re.compile(r"^(?P<device>.*?)\s*(\[(?P<part>\d+)/(?P<parts>\d+)\])?$")
_NUMBERED = re.compile(r"^opencl(?P<platform>\d+):(?P<device>\d+)$")

_TRIAL = """
__kernel void optdb_trial(__global int *out) {
    out[get_global_id(0)] = 40 + (int) get_global_id(0);
}
"""

_NO_PLATFORM = (
    "no OpenCL platform was found.\nThe cure: install a driver for your device; for the processor, "
    "apt-get install pocl-opencl-icd (Debian), or, slowly and everywhere, pip install optdb[oclgrind]"
)


@dataclass(frozen=True)
class Row:
    """A device, as the command line shows it.

    Parameters
    ----------
    spec : str
        What finds it.
    platform, name : str
        As the driver calls them.
    kind : str
        GPU, CPU, accelerator or simulator.
    units : int
        Its compute units.
    memory : int
        Its memory, in bytes.
    trouble : str or None
        Why it does not work; None if it does.
    """

    spec: str
    platform: str
    name: str
    kind: str
    units: int
    memory: int
    trouble: str | None

    @property
    def works(self) -> bool:
        """Whether a kernel was built and run on it."""
        return self.trouble is None


def list_devices() -> list[Row]:
    """Return all devices, each of them tried, in the order of their numbers."""
    return [
        Row(
            spec,
            device.platform.name.strip(),
            device.name.strip(),
            _kind(device),
            device.max_compute_units,
            device.global_mem_size,
            trouble(device),
        )
        for spec, device in _all()
    ]


def find(spec: str) -> cl.Device:
    """Return the device that a text means.

    Parameters
    ----------
    spec : str
        ``opencl``, ``opencl<platform>:<device>`` or a part of a device's or platform's
        name, whatever its case. ``[i/n]`` behind it is the i-th of n equal parts.

    Raises
    ------
    DeviceError
        If there is no such device, or it does not work.
    """
    match = _SPEC.match(spec.strip())
    device = _whole(match["device"], spec)
    if match["parts"] is None:
        return device
    return _part(device, int(match["part"]), int(match["parts"]), spec)


def _whole(wanted: str, spec: str) -> cl.Device:
    numbered = _NUMBERED.match(wanted)
    if numbered:
        return _by_number(wanted, spec)
    if wanted == "opencl":
        candidates = [device for _, device in _all()]
        if not candidates:
            raise DeviceError(f"{spec}: {_what_there_is()}")
    else:
        candidates = _by_name(wanted)
        if not candidates:
            raise DeviceError(f"{spec}: no device is called that; {_what_there_is()}")
    for device in sorted(candidates, key=_rank):
        if trouble(device) is None:
            return device
    raise DeviceError(f"{spec}: no such device works; {_what_there_is()}")


def _by_number(wanted: str, spec: str) -> cl.Device:
    for name, device in _all():
        if name != wanted:
            continue
        problem = trouble(device)
        if problem is not None:
            raise DeviceError(f"{spec}: {device.name.strip()} does not work: {problem}; {_what_there_is()}")
        return device
    raise DeviceError(f"{spec}: there is no such device; {_what_there_is()}")


def _by_name(wanted: str) -> list[cl.Device]:
    """Return the devices of that name, or of a platform of that name, or else with it in theirs."""
    wanted = wanted.casefold()
    if not wanted:
        return []
    named = [(f"{device.name.strip()}\n{device.platform.name.strip()}".casefold(), device) for _, device in _all()]
    exact = [device for names, device in named if wanted in names.split("\n")]
    return exact or [device for names, device in named if wanted in names]


def _part(device: cl.Device, part: int, parts: int, spec: str) -> cl.Device:
    units = device.max_compute_units
    if not 1 <= part <= parts:
        raise DeviceError(f"{spec}: the parts of a device are [1/{parts}] to [{parts}/{parts}]")
    if parts == 1:  # also for devices that cannot be divided
        return device
    if parts > units:
        raise DeviceError(f"{spec}: {device.name.strip()} has {units} compute unit(s), too few for {parts} parts")
    try:
        return device.create_sub_devices([cl.device_partition_property.EQUALLY, units // parts])[part - 1]
    except cl.Error as error:
        raise DeviceError(
            f"{spec}: {device.name.strip()} cannot be divided ({error}).\nThe cure: leave out [{part}/{parts}]"
        ) from error


def _what_there_is() -> str:
    rows = list_devices()
    if not rows:
        return _NO_PLATFORM
    lines = [f"    {row.spec}  {row.name}" + ("" if row.works else f"  (fails: {row.trouble})") for row in rows]
    return "\n".join(["there is:", *lines, "The cure: name one of these, or part of its name"])


def _all() -> Iterator[tuple[str, cl.Device]]:
    """Yield every device with its number. Platforms without devices count, but give none."""
    check_process()
    try:
        platforms = cl.get_platforms()
    except cl.LogicError:  # the loader's way to say that there is none
        return
    for p, platform in enumerate(platforms):
        try:
            devices = platform.get_devices()
        except cl.Error:  # a driver without its hardware
            continue
        for d, device in enumerate(devices):
            yield f"opencl{p}:{d}", device


def _kind(device: cl.Device) -> str:
    if "oclgrind" in device.platform.name.casefold():
        return "simulator"
    if device.type & cl.device_type.GPU:
        return "GPU"
    if device.type & cl.device_type.CPU:
        return "CPU"
    return "accelerator"


def _rank(device: cl.Device) -> int:
    return ("GPU", "accelerator", "CPU", "simulator").index(_kind(device))


@functools.cache
def trouble(device: cl.Device) -> str | None:
    """Tell why a device does not work, None if it does.

    A kernel is built and run, without any cache of binaries: a binary from better days
    would hide that today's driver cannot build.
    """
    try:
        with compilers_unheard():
            got = _run_trial(device)
    except (cl.Error, cl.RuntimeError) as error:
        return str(error).strip().partition("\n")[0][:200]
    wanted = list(range(40, 44))
    return None if got == wanted else f"computed {got}, not {wanted}"


def _run_trial(device: cl.Device) -> list[int]:
    context = cl.Context([device])
    queue = cl.CommandQueue(context)
    program = cl.Program(context, _TRIAL).build(cache_dir=False)
    result = np.zeros(4, np.int32)
    out = cl.Buffer(context, cl.mem_flags.READ_WRITE, result.nbytes)
    program.optdb_trial(queue, result.shape, None, out)
    cl.enqueue_copy(queue, result, out)
    return result.tolist()
