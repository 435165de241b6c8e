"""Simulators that travel: what a pickle holds of one, and how it is made again.

The functions go as Theano pickles them, all in one pickle, so that what they share is still shared. What is on a
device goes as NumPy arrays. The device goes as it was asked for: ``'auto'`` is looked for anew.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from optdb.host.compiled import Function
from optdb.host.logging import logger
from optdb.opencl.registry import context_of, get_context
from optdb.runtime.errors import DeviceError
from optdb.unpickling import restore

if TYPE_CHECKING:
    from optdb.opencl.simulator.simulator import SimulatorOCL

__all__ = ["rebuild", "reduced"]


def reduced(simulator: SimulatorOCL) -> tuple[Any, ...]:
    """Return what makes a simulator again, as ``__reduce__`` does; nobody may call it meanwhile."""
    values = [shared.value() for shared in simulator._session.state]
    kept = {name: function.method.kept() for name, function in simulator._methods.items()}
    return restore, (simulator.functions, simulator._session.device, values, kept)


def rebuild(functions: dict[str, Function], device: str, values: list[Any], kept: dict[str, list[Any]]) -> SimulatorOCL:
    """Make a simulator again; the parameters are those of `optdb.unpickling.restore`.

    Raises
    ------
    optdb.runtime.errors.DeviceError
        If there is no device at all.
    """
    from optdb.opencl.simulator.simulator import CALL, SimulatorOCL

    functions = dict(functions)
    simulator = SimulatorOCL(functions.pop(CALL), _here(device))
    for name, function in functions.items():
        simulator.add_method(name, function)
    for shared, value in zip(simulator._session.state, values, strict=True):
        shared.assign(value)
    for name, inputs in kept.items():
        simulator._methods[name].method.keep(inputs)
    return simulator


def _here(device: str) -> str:
    """Return a device's name if there is such a device, else that of the default one."""
    try:
        context_of(device)
    except DeviceError as error:
        if device in (None, "auto"):
            raise
        found = get_context(context_of("auto")).profile.name
        logger.warning("A simulator was on the device %s. It is now on %s: %s", device, found, error)
        return "auto"
    return device
