"""A cluster of processes on this machine in which each worker that dies is started anew (`RestartingCluster`)."""

from __future__ import annotations

from typing import Any

import dask
from distributed import LocalCluster, Nanny
from distributed.deploy import Cluster

__all__ = ["RestartingCluster"]

#: What the C library reads when a worker starts: how much freed memory it keeps, and which arrays it never keeps.
_ALLOCATOR = {"MALLOC_TRIM_THRESHOLD_": 1 << 28, "MALLOC_MMAP_THRESHOLD_": 1 << 25}
_SETTING = "distributed.nanny.pre-spawn-environ"
#: Dask's own setting, which lets a worker give back all memory that it frees.
_OF_DASK = {"MALLOC_TRIM_THRESHOLD_": 65536}


class _KeepingNanny(Nanny):
    """Starts workers that keep the memory of the sums of a step for the next one.

    The system clears each page of new memory as a worker first writes there. For sums of 3.2 MB that took longer than
    to receive them.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        present = dask.config.get(_SETTING, {})
        # What the user has set stays.
        chosen = {name: value for name, value in _ALLOCATOR.items() if present.get(name) in (None, _OF_DASK.get(name))}
        with dask.config.set({_SETTING: {**present, **chosen}}):
            super().__init__(*args, **kwargs)


class RestartingCluster(LocalCluster):
    """A `LocalCluster` that leaves dead workers to their nannies.

    A nanny starts a process in place of one that has died. `LocalCluster` interferes: some seconds after each death
    (`distributed.deploy.lost-worker-timeout`, 15 s) it looks whether a worker of that name is registered. If the worker
    has died a second time just then, or takes longer than that to start, it closes the nanny, and nobody starts the
    worker anew. That look is for jobs of batch systems, which have no nanny on this machine.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **{"worker_class": _KeepingNanny, **kwargs})

    def _update_worker_status(self, op: str, msg: Any) -> None:
        Cluster._update_worker_status(self, op, msg)
