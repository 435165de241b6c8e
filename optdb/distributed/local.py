"""A cluster of processes on this machine in which each worker that dies is started anew (`RestartingCluster`)."""

from __future__ import annotations

from typing import Any

from distributed import LocalCluster
from distributed.deploy import Cluster

__all__ = ["RestartingCluster"]


class RestartingCluster(LocalCluster):
    """A `LocalCluster` that leaves dead workers to their nannies.

    A nanny starts a process in place of one that has died. `LocalCluster` interferes: some seconds after each death
    (`distributed.deploy.lost-worker-timeout`, 15 s) it looks whether a worker of that name is registered. If the worker
    has died a second time just then, or takes longer than that to start, it closes the nanny, and nobody starts the
    worker anew. That look is for jobs of batch systems, which have no nanny on this machine.
    """

    def _update_worker_status(self, op: str, msg: Any) -> None:
        Cluster._update_worker_status(self, op, msg)
