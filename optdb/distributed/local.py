"""A cluster of worker processes on this machine; workers that die are restarted (`RestartingCluster`)."""

from __future__ import annotations

from typing import Any

from distributed import LocalCluster, Nanny
from distributed.deploy.cluster import Cluster

__all__ = ["RestartingCluster"]

#: C library settings for a worker: how much freed memory it keeps, and the size above which it keeps no freed block.
_ALLOCATOR = {"MALLOC_TRIM_THRESHOLD_": str(1 << 28), "MALLOC_MMAP_THRESHOLD_": str(1 << 25)}
#: Dask's own setting, which makes a worker return all freed memory to the system.
_OF_DASK = {"MALLOC_TRIM_THRESHOLD_": "65536"}


class _KeepingNanny(Nanny):
    """Starts workers that keep the memory for a step's sums, and reuse it in the next step.

    The system clears each page of new memory on the first write. For sums of 3.2 MB, that took longer than receiving
    the sums.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        for name, value in _ALLOCATOR.items():
            # Do not override the user's settings.
            if self.pre_spawn_env.get(name) in (None, _OF_DASK.get(name)):
                self.pre_spawn_env[name] = self.env[name] = value


class RestartingCluster(LocalCluster):
    """A `LocalCluster` that lets nannies restart dead workers.

    A nanny starts a new process when its worker has died. `LocalCluster` interferes: a certain time after each death
    (`distributed.deploy.lost-worker-timeout`, 15 s), it checks whether a worker with that name is registered. If the
    worker has died again by then, or takes longer to start, `LocalCluster` closes the nanny, and the worker is not
    restarted. The check is meant for jobs in batch systems, which have no nanny on this machine.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **{"worker_class": _KeepingNanny, **kwargs})

    def _update_worker_status(self, op: str, msg: Any) -> None:
        Cluster._update_worker_status(self, op, msg)
