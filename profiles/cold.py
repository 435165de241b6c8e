"""How long a training step is in coming: from the start of a process, with empty caches and again with full ones.

`start` runs in the new process. `measure` starts it for the device, for Theano's C code behind optdb's optimizer, and
for Theano without optdb, each with folders of its own for whatever compilers keep: Theano's compiled modules, and
OpenCL programs of optdb's, PyOpenCL's and the driver's. Seconds are those of the clock, and, for machines that compute
for others meanwhile, those of processors.
"""

from __future__ import annotations

import os
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from profiles import isolated

PARTS = ("import", "model", "compile", "step")
"""What a start consists of: Python and imports; the symbolic graph; ``theano.function``; the first call."""

SIDES = ("device", "Theano C", "Theano alone")
CACHES = ("cold", "warm")


@dataclass(frozen=True)
class Start:
    """One start of a process.

    Parameters
    ----------
    side
        One of `SIDES`.
    cache
        One of `CACHES`.
    seconds
        Of each of `PARTS`.
    cpu
        Seconds of processors, of all threads and of the compilers that were called.
    """

    side: str
    cache: str
    seconds: dict[str, float]
    cpu: float

    @property
    def total(self) -> float:
        """Seconds from the start of the process to the first result."""
        return sum(self.seconds.values())


def start(name: str, began: float) -> tuple[dict[str, float], float]:
    """Build a model, compile it and make one step; return the seconds of each part, and those of processors.

    Parameters
    ----------
    name
        Of the model.
    began
        When the process was started, as `time.time` says it.
    """
    times = [began]
    import theano

    from profiles import models

    times.append(time.time())
    model = models.build(name)
    times.append(time.time())
    function = theano.function(model.inputs, model.outputs, updates=model.updates)
    times.append(time.time())
    function(*model.data)
    times.append(time.time())
    used = os.times()
    cpu = used.user + used.system + used.children_user + used.children_system
    return {part: after - before for part, before, after in zip(PARTS, times, times[1:])}, cpu


def measure(name: str, device: str = "opencl", timeout: float | None = None) -> list[Start]:
    """Start a model twice on each of `SIDES`: from empty caches, and again from what the first start left.

    Parameters
    ----------
    name
        Of the model.
    device
        Which device, as the flag ``optdb.device`` names it.
    timeout
        Seconds that a start may take.

    Raises
    ------
    isolated.Failed
        If a start fails, or takes too long.
    """
    starts = []
    for side, ours in zip(SIDES, (f"optdb.topo=True,optdb.device={device}", "optdb.topo=True", "optdb.topo=False")):
        with tempfile.TemporaryDirectory(prefix="optdb-cold-") as folder:
            flags = f"floatX=float32,{ours},base_compiledir={folder}/theano"
            for cache in CACHES:
                began = ("profiles.cold:start", name, time.time())
                try:
                    seconds, cpu = isolated.call(*began, flags=flags, env=caches(Path(folder)), timeout=timeout)
                except isolated.Failed as failure:
                    raise isolated.Failed(f"{side}, {cache} caches: {failure}") from None
                starts.append(Start(side, cache, seconds, cpu))
    return starts


def caches(folder: Path) -> dict[str, str]:
    """Return the environment in which compilers keep what they made below a folder."""
    names = {"POCL_CACHE_DIR": "pocl", "XDG_CACHE_HOME": "xdg", "CUDA_CACHE_PATH": "cuda"}
    return {variable: str(folder / name) for variable, name in names.items()}
