"""A cluster of processes on this machine in which each worker that dies is started anew (`RestartingCluster`)."""

from __future__ import annotations

from typing import Any

from distributed import LocalCluster, Nanny
from distributed.deploy.cluster import Cluster

__all__ = ["RestartingCluster"]

#: What the C library reads when a worker starts: how much freed memory it keeps, and which arrays it never keeps.
_ALLOCATOR = {"MALLOC_TRIM_THRESHOLD_": str(1 << 28), "MALLOC_MMAP_THRESHOLD_": str(1 << 25)}
#: Dask's own setting, which lets a worker give back all memory that it frees.
_OF_DASK = {"MALLOC_TRIM_THRESHOLD_": "65536"}


class _KeepingNanny(Nanny):
    """Starts workers that keep the memory of the sums of a step for the next one.

    The system clears each page of new memory as a worker first writes there. For sums of 3.2 MB that took longer than
    to receive them.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        for name, value in _ALLOCATOR.items():
            # What the user has set stays.
            if self.pre_spawn_env.get(name) in (None, _OF_DASK.get(name)):
                self.pre_spawn_env[name] = self.env[name] = value


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
