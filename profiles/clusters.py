"""Starts clusters of dask's workers on this machine, and counts the bytes that pass through their schedulers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from distributed import Client


@contextmanager
def local_client(workers: int) -> Iterator[Client]:
    """Start a cluster whose workers are processes on this machine."""
    from distributed import Client

    from optdb.distributed.clusters import RestartingCluster

    with (
        RestartingCluster(n_workers=workers, threads_per_worker=1, processes=True, dashboard_address=None) as cluster,
        Client(cluster) as client,
    ):
        yield client


@contextmanager
def counted_bytes(client: Client) -> Iterator[Callable[[], int]]:
    """Count the bytes that the scheduler reads and writes over all connections; yield a function that returns them."""

    def written(dask_scheduler: Any) -> int:
        return sum(comm.stream._total_write_index for comm in _connections(dask_scheduler))

    def begin(dask_scheduler: Any) -> None:
        dask_scheduler.optdb_bytes = -written(dask_scheduler)

        def counting(method: Callable[..., Any], size: Callable[[Any], int]) -> Callable[..., Any]:
            def count(data: Any, *args: Any, **kwargs: Any) -> Any:
                dask_scheduler.optdb_bytes += size(data)
                return method(data, *args, **kwargs)

            return count

        for comm in _connections(dask_scheduler):
            comm.stream.read_into = counting(comm.stream.read_into, lambda data: memoryview(data).nbytes)
            comm.stream.read_bytes = counting(comm.stream.read_bytes, int)

    def end(dask_scheduler: Any) -> None:
        for comm in _connections(dask_scheduler):
            for name in ("read_into", "read_bytes"):
                vars(comm.stream).pop(name, None)

    client.run_on_scheduler(begin)
    try:
        yield lambda: client.run_on_scheduler(
            lambda dask_scheduler: dask_scheduler.optdb_bytes + written(dask_scheduler)
        )
    finally:
        client.run_on_scheduler(end)


def _connections(scheduler: Any) -> list[Any]:
    batched = [*scheduler.stream_comms.values(), *scheduler.client_comms.values()]
    comms = {id(comm): comm for comm in [*scheduler._comms, *(each.comm for each in batched)]}
    return [comm for comm in comms.values() if getattr(comm, "stream", None) is not None]
