"""The time to the first training step: from the start of a process, with empty caches and again with full ones.

`measure` starts it through `profiles.starts`, for the device, for Theano's C code after optdb's optimizer, and for
Theano without optdb.
"""

from __future__ import annotations

from profiles import starts
from profiles.starts import CACHES, Start
from profiles.starts import WALL_PARTS as PARTS

__all__ = ["CACHES", "PARTS", "SIDES", "measure"]

SIDES = ("device", "Theano C", "Theano alone")


def measure(name: str, device: str = "opencl", timeout: float | None = None) -> list[Start]:
    """Start a model twice on each of `SIDES`, up to the result of one training step.

    Parameters
    ----------
    name
        The model's name.
    device
        The device, as the flag ``optdb.device`` names it.
    timeout
        Seconds that a start may take.

    Raises
    ------
    isolated.Failed
        If a start fails, or takes too long.
    """
    flags = {
        "device": f"optdb.topo=True,optdb.device={device}",
        "Theano C": "optdb.topo=True",
        "Theano alone": "optdb.topo=False,optdb.clinker=False",
    }
    return starts.measure(name, {side: flags[side] for side in SIDES}, calls=1, timeout=timeout)
