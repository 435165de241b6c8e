"""The named OpenCL contexts, initially the contexts that the flags name."""

from __future__ import annotations

from collections.abc import Hashable

from optdb.flags import context_pairs
from optdb.host.api.config import config
from optdb.lifters.contexts import Contexts
from optdb.runtime.context import Context
from optdb.runtime.errors import DeviceError

#: The name of the context for the flag optdb.device. This name does not depend on the device, so that pickles can be
#: loaded on another device.
DEFAULT_NAME = "opencl"


def _fill(known: Contexts) -> None:
    for name, spec in context_pairs(config.optdb.contexts):
        known.register(name, spec)
    device = config.optdb.device
    if device == "cpu":
        return
    if device not in known:
        known.register(DEFAULT_NAME, device)
        device = DEFAULT_NAME
    known.default = device


contexts = Contexts(Context, fill=_fill)


def get_context(name: Hashable = None) -> Context:
    """Return the context with the given name; the default context if the name is None.

    Raises
    ------
    ContextNotDefined
        If there is no context with that name.
    optdb.runtime.errors.DeviceError
        If the context's device is missing or does not work.
    """
    return contexts.get(name)


def context_of(device: str | None = "auto") -> Hashable:
    """Return the name of a device's context; create the context if needed.

    `device` names a device as in `SimulatorOCL`. Raises DeviceError if this device does not exist or does not work.
    """
    if device is None or device == "auto":
        if contexts.default is not None:
            return contexts.default
        device = DEFAULT_NAME
    if device == "cpu":
        raise DeviceError(
            "cpu is the host, not an OpenCL device.\n"
            "The cure: omit the device, or name the OpenCL driver of the processor, such as pocl; `python -m optdb "
            "devices` lists the devices"
        )
    if device in contexts:
        return device
    contexts.register(device, device)
    try:
        get_context(device)
    except DeviceError:
        contexts.forget(device)
        raise
    return device
