"""`Replica`, which runs a worker's part of a step in two phases.

`prepare` runs the step and waits for the other workers, but changes no shared variable. `prepare` can also run in
stages: `launch`, `collect` and `finish`. `commit` stores the next values of shared variables.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from optdb.device.plans.plan import Before
from optdb.distributed.exchange import Exchange
from optdb.distributed.worker_threads import Agreement
from optdb.opencl.simulator import SimulatorOCL
from optdb.opencl.simulator.execution.calls import Results
from optdb.runtime.commands import CommandList
from optdb.runtime.scripts import Script

__all__ = ["Ending", "Part", "Prepared", "Replica"]


@dataclass
class Part:
    """One worker's part of a batch."""

    #: The arguments in the function's order; split arguments contain only the worker's rows.
    arguments: Sequence[Any]
    #: The number of the worker's rows; if it is 0, split arguments are None.
    rows: int
    #: The index of the worker's first row in the batch.
    first: int
    #: The length of the whole batch.
    length: int


@dataclass
class Prepared:
    """The results of `prepare`, the first phase of a step."""

    #: Outputs that would be equal on all workers; only the first worker computes them.
    wholes: list[np.ndarray]
    #: Outputs for this worker's part of the batch.
    own: list[np.ndarray]
    #: Maps phases to durations in seconds: 'compute', 'download' of summands, 'exchange', 'upload' of sums, and
    #: 'update', which is the update of the previous step.
    seconds: dict[str, float]
    #: On the first worker, holds the `wholes` until they have been copied to the host; None otherwise.
    pending: Results | None = None


class Replica:
    """A worker's copy of the training state, on one device; see `replica_of` for the parameters."""

    def __init__(self, training: Any, simulator: SimulatorOCL) -> None:
        self._training = training
        self._simulator = simulator
        #: The number of steps that the state includes.
        self.steps = 0
        self._prepared_step: int | None = None
        self._update_seconds = self._download_seconds = self._upload_seconds = 0.0
        #: The `Part` and the `Exchange` of the launched step; None if no step is launched.
        self._under_way: tuple[Part, Exchange] | None = None
        self._start = 0.0

    @property
    def device(self) -> str:
        """The name that the device reports."""
        return self._simulator.device

    @property
    def adds_on_device(self) -> bool:
        """Whether the device can add up the vectors of all workers."""
        return False

    def settle(self, committed: int) -> bool:
        """Commit or discard the prepared step; return whether the state then includes exactly `committed` steps."""
        self.commit(committed)
        self._prepared_step = None
        return self.steps == committed

    def commit(self, committed: int, agree: Callable[[], None] | None = None) -> None:
        """Commit the step if it is among the first `committed` steps; first call `agree`, which may raise an error."""
        if self._prepared_step is None or self._prepared_step >= committed:
            return
        start = time.perf_counter()
        self._commit(agree)
        self._update_seconds = time.perf_counter() - start
        self.steps = self._prepared_step + 1
        self._prepared_step = None

    def stage(self, part: Part) -> Part:
        """Start copying a part of a batch to the device during an earlier step; return the part to pass to `prepare`.

        Any thread may call this method. After the call, the caller may modify those arguments that the returned part
        has replaced with copies.
        """
        return part

    def prepare(self, part: Part, exchange: Exchange) -> Prepared:
        """Run a step and wait for the other workers; `complete` waits until the results are on the host."""
        self.launch(part, exchange)
        self.collect()
        prepared = self.finish()
        self._rehearse()
        return prepared

    def launch(
        self, part: Part, exchange: Exchange, before: Before | None = None, ending: Ending | None = None
    ) -> None:
        """Launch a step on the device, which may still run the previous step.

        The function `before` ends the previous step. If `ending` is given, `before` uses it, and receives a list of the
        new step's first commands; otherwise, the list is empty. `before` returns whether it has enqueued these
        commands. If `before` raises, the step is not launched.
        """

        def begin(first: CommandList) -> bool:
            leads = before is not None and before(first)
            self._under_way, self._start = (part, exchange), time.perf_counter()
            return leads

        self._launch(part, exchange, begin, ending)

    def collect(self) -> None:
        """Receive the pieces that other workers send while these workers are still computing gradients."""

    def finish(self) -> Prepared:
        """Wait for the other workers, and return the results of the launched step."""
        part, exchange = self._launched()
        own, pending = self._finish(part, exchange)
        prepared = self._described(exchange, own, pending, time.perf_counter() - self._start)
        self._under_way = None
        self._prepared_step = self.steps
        return prepared

    def ending(self, agreement: Agreement) -> Ending | None:
        """Return an `Ending` that finishes and commits the step after `collect`; None if this requires Python."""
        return None

    def end(self, ending: Ending, first: CommandList) -> Prepared:
        """Run `ending`, which finishes and commits a step, and enqueue the `first` commands of the next step."""
        raise NotImplementedError

    def _launched(self) -> tuple[Part, Exchange]:
        """Return the `Part` and the `Exchange` of the launched step."""
        assert self._under_way is not None, "`launch` comes first"
        return self._under_way

    def _described(
        self, exchange: Exchange, own: list[np.ndarray], pending: Results | None, seconds: float
    ) -> Prepared:
        """Return a `Prepared` for a step that took `seconds` seconds."""
        moved = {"download": self._download_seconds, "upload": self._upload_seconds}
        compute = seconds - exchange.seconds - sum(moved.values())
        parts = {"compute": compute, **moved, "exchange": exchange.seconds, "update": self._update_seconds}
        return Prepared([], own, parts, pending)

    def complete(self, prepared: Prepared) -> Prepared:
        """Wait until the results are on the host, and return them; any thread may call this during later steps."""
        if prepared.pending is not None:
            prepared.wholes, prepared.pending = prepared.pending.wait(), None
        return prepared

    def state(self) -> list[Any]:
        """Return the values of the shared variables, in the order of `SynchronousTraining.shared`."""
        return [self._simulator.get(shared) for shared in self._training.shared]

    def load(self, state: Sequence[Any], steps: int) -> None:
        """Set the shared variables to the state after `steps` steps."""
        for shared, value in zip(self._training.shared, state, strict=True):
            self._simulator.set(shared, value)
        self.steps, self._prepared_step = steps, None

    def close(self) -> None:
        """Release the device's memory."""
        self._simulator.close()

    def _launch(self, part: Part, exchange: Exchange, begin: Before, ending: Ending | None) -> None:
        """Call `begin` and run the step on the part; arguments may be copied to the device before `begin` is called."""
        raise NotImplementedError

    def _finish(self, part: Part, exchange: Exchange) -> tuple[list[np.ndarray], Results | None]:
        """Return the outputs for this worker's part, and the results that are equal on all workers."""
        raise NotImplementedError

    def _commit(self, agree: Callable[[], None] | None) -> None:
        raise NotImplementedError

    def _rehearse(self) -> None:
        """Raise the errors that a commit would raise, without storing values."""


@dataclass
class Ending:
    """A `Script` that finishes a step, waits until all workers agree, and commits the step, in C rather than Python."""

    script: Script
    agreement: Agreement
    #: The arguments for the update.
    taken: list[Any]
    #: Holds the results that are equal on all workers until they have been copied to the host.
    pending: Results | None
    #: Maps the names of points in the script to the times at which the script reaches these points.
    times: dict[str, Any]
    #: Whether the script has enqueued the first commands of the next step.
    leads: bool = False
