"""Processes that evaluate a model in turn; each process compiles the model in another configuration.

Each configuration therefore has separate threads and memory, and a busy phase of the machine affects all of them.
"""

from __future__ import annotations

import gc
import multiprocessing
import time
import traceback
from collections.abc import Mapping
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any

from profiles import isolated

__all__ = ["Seconds", "Worker", "race"]

#: Number of untimed first evaluations, which allocate memory and fill caches.
WARM_UP = 3


@dataclass(frozen=True)
class Seconds:
    """The duration of an evaluation: CPU seconds of all threads of the process, and wall seconds."""

    cpu: float
    wall: float


class Worker:
    """A process with a compiled model. `isolated.Failed` is raised if compiling or evaluating the model fails."""

    def __init__(self, name: str, size: int, side: str) -> None:
        context = multiprocessing.get_context("spawn")
        self._connection, theirs = context.Pipe()
        self._title = f"{name}, {side}"
        self._process = context.Process(target=_serve, args=(theirs, name, size, side), daemon=True)
        self._process.start()
        theirs.close()
        try:
            self._receive()
        except isolated.Failed:
            self.close()
            raise

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def turn(self, at_least_s: float) -> Seconds:
        """Evaluate the model for at least some seconds; return the mean time of an evaluation."""
        self._connection.send(at_least_s)
        return Seconds(*self._receive())

    def close(self) -> None:
        """End the process."""
        self._connection.close()
        self._process.join(timeout=5)
        if self._process.is_alive():
            self._process.kill()
            self._process.join()

    def _receive(self) -> Any:
        try:
            is_right, result = self._connection.recv()
        except EOFError:
            self._process.join()
            raise isolated.Failed(f"{self._title}: the process ended with {self._process.exitcode}") from None
        if not is_right:
            raise isolated.Failed(f"{self._title}: {result}")
        return result


def _serve(connection: Connection, name: str, size: int, side: str) -> None:
    """Compile a model; for each received number of seconds, evaluate the model for so long, and send the mean times."""
    try:
        from profiles.pytensor import densities

        density = densities.compiled(name, size, side)
        for _ in range(WARM_UP):
            for point in density.points:
                density(point)
        gc.disable()
        connection.send((True, None))
        while True:
            connection.send((True, _seconds_of_call(density, connection.recv())))
    except EOFError:
        return
    except Exception:
        connection.send((False, traceback.format_exc(limit=-3)))


def _seconds_of_call(density: Any, at_least_s: float) -> tuple[float, float]:
    began, began_cpu, calls, taken = time.perf_counter(), time.process_time(), 0, 0.0
    while not calls or taken < at_least_s:
        density(density.points[calls % len(density.points)])
        calls += 1
        taken = time.perf_counter() - began
    return (time.process_time() - began_cpu) / calls, taken / calls


def race(workers: Mapping[str, Worker], turns: int, at_least_s: float) -> dict[str, list[Seconds]]:
    """Let workers evaluate in turn, each time for at least `at_least_s` seconds; return the times of each worker."""
    taken: dict[str, list[Seconds]] = {side: [] for side in workers}
    for _ in range(turns):
        for side, worker in workers.items():
            taken[side].append(worker.turn(at_least_s))
    return taken
