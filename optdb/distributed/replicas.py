"""Replicas for exact steps (`SynchronousReplica`) and independent steps (`LocalReplica`)."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from optdb.device.plans.plan import Before
from optdb.distributed.exchange import FINAL, Exchange
from optdb.distributed.packing import Summands
from optdb.distributed.replica import Ending, Part, Prepared, Replica
from optdb.distributed.sharding import rounds
from optdb.distributed.sharding.collective import taking_part
from optdb.distributed.training_functions import LocalTraining, SynchronousTraining
from optdb.distributed.worker_threads import Agreement
from optdb.opencl.simulator import SimulatorOCL
from optdb.opencl.simulator.execution.calls import PendingResults, RepeatedMethod, Results, TrustedMethod, merge_at_once
from optdb.opencl.simulator.packing import finish
from optdb.opencl.simulator.pieces import Piece
from optdb.runtime.commands import CommandList
from optdb.runtime.scripts import IMMEDIATE, Calls, Script, can_script

__all__ = ["LIFTED", "LocalReplica", "SynchronousReplica", "replica_of"]

#: Modules that register lifters when they are imported.
LIFTED = (rounds,)


@dataclass
class _Lent:
    """The pieces of summands that workers read from each other in a step."""

    #: This worker's first piece that is complete only after all gradients are computed.
    own: Piece
    #: Yields the other workers' pieces, each with its worker's rank, in the order in which the pieces become ready.
    pieces: Iterator[tuple[int, Piece]]
    #: The other workers' pieces that are complete only after all gradients are computed, each with its worker's rank.
    last: list[tuple[int, Piece]] = field(default_factory=list)


class SynchronousReplica(Replica):
    """Runs exact steps, in which all replicas apply the same update."""

    def __init__(self, training: SynchronousTraining, device: str) -> None:
        super().__init__(training, SimulatorOCL(training.gradients, device, progress_bar=False))
        self._gradients = TrustedMethod(self._simulator)
        self._simulator.add_method("update", training.update)
        # Merge the update's commands in the first plan: the device is idle until the update begins, and other devices
        # wait until it ends.
        merge_at_once(self._simulator["update"])
        self._update = RepeatedMethod(self._simulator["update"])
        self._results: PendingResults | None = None
        if training.results is not None:
            self._simulator.add_method("results", training.results)
            merge_at_once(self._simulator["results"])
            self._results = PendingResults(self._simulator["results"])
        self._summands = Summands(self._simulator, training)
        self._taken: list[Any] = []
        self._staging: dict[Any, Any] = {}
        #: The launched step's outputs for this worker's part, and the pieces lent in that step.
        self._own: list[np.ndarray] = []
        self._lent: _Lent | None = None

    def stage(self, part: Part) -> Part:
        if not part.rows:
            return part
        # Arguments that are not split are also read by other functions, so they are not staged.
        same = self._training.same
        staged = self._gradients.stage([None if i in same else value for i, value in enumerate(part.arguments)])
        arguments = [value if i in same else staged[i] for i, value in enumerate(part.arguments)]
        return Part(arguments, part.rows, part.first, part.length)

    def _launch(self, part: Part, exchange: Exchange, begin: Before, ending: Ending | None) -> None:
        def begin_lending(first: CommandList) -> bool:
            leads = begin(first)
            self._summands.begin_lending(exchange)
            if leads:
                exchange.launched()
            return leads

        if exchange.lends:
            self._compute(part, exchange, begin_lending, at_once=ending is None)
            self._lent = _Lent(self._summands.end_lending(exchange), exchange.lent(FINAL))
            return
        begin(CommandList())
        self._lent, self._own = None, []
        self._summands.close()  # an aborted attempt has perhaps not released the summands
        if part.rows:
            self._compute(part, exchange)

    def _compute(self, part: Part, exchange: Exchange, before: Before | None = None, at_once: bool = True) -> None:
        """Compute gradients on the device."""
        exchange.staging = self._staging
        numbers = map(_number, (part.length, part.first, exchange.attempt))
        with taking_part(exchange):
            outputs = self._gradients(*part.arguments, *numbers, before=before, at_once=at_once)
        self._own = list(outputs)

    def collect(self) -> None:
        if self._lent is None:
            return
        for rank, piece in self._lent.pieces:
            if piece.is_last:
                self._lent.last.append((rank, piece))
            else:
                self._summands.receive(rank, piece, IMMEDIATE)

    def _finish(self, part: Part, exchange: Exchange) -> tuple[list[np.ndarray], Results | None]:
        if self._lent is not None:
            computed, added = self._add_lent(exchange, self._lent, IMMEDIATE)
            exchange.note(added.value - computed.value)
        elif part.rows:
            self._add_up(exchange)
        else:
            self._take_passed(exchange.receive_passed())
        self._taken = self._arguments(part)
        results = self._results_of(exchange)
        return self._own, None if results is None else results.begin(*self._taken)

    def _arguments(self, part: Part) -> list[Any]:
        """Return the arguments of the functions that compute the update and the results."""
        return [*(part.arguments[i] for i in self._training.same), _number(part.length)]

    def _results_of(self, exchange: Exchange) -> PendingResults | None:
        """Return the object that computes the results shared by all workers; None except on the first worker."""
        return self._results if exchange.is_first else None

    @property
    def adds_on_device(self) -> bool:
        return self._summands.are_added_on_device

    def ending(self, agreement: Agreement) -> Ending | None:
        queue = self._summands.queue
        if self._lent is None or not agreement.is_native or not can_script():
            return None
        part, exchange = self._launched()
        taken = self._arguments(part)
        results = self._results_of(exchange)
        update = self._update.commands(*taken)
        of_results = None if results is None else results.commands(*taken)
        if update is None or (results is not None and of_results is None):
            return None
        script = Script()
        try:
            times = {"begun": script.note_time()}
            times["computed"], times["added"] = self._add_lent(exchange, self._lent, script)
            pending = None
            if results is not None and of_results is not None:
                pending = results.begin_by(script, of_results)
            script.flush(queue)
            agreement.agree_by(script)
            times["agreed"] = script.note_time()
            script.enqueue(update)
            times["updated"] = script.note_time()
        except BaseException:
            script.ended.open()
            raise
        return Ending(script, agreement, taken, pending, times)

    def end(self, ending: Ending, first: CommandList) -> Prepared:
        """Finish and commit a step; also enqueue the next step's `first` commands, unless they require Python."""
        script, times, start = ending.script, ending.times, time.perf_counter()
        if not first.needs_python:
            script.enqueue(first)
        script.flush(self._summands.queue)
        self._prepared_step, self._taken = self.steps, ending.taken
        try:
            script.run()
            ending.leads = not first.needs_python
        except Exception:
            # Once all workers have agreed, the step must be committed.
            if not ending.agreement.is_reached:
                self._prepared_step = None
                raise
        begun, computed, added, agreed, updated = (seconds.value for seconds in times.values())
        if updated:
            self.steps, self._prepared_step, self._taken = self.steps + 1, None, []
        _, exchange = self._launched()
        exchange.note(added - computed)
        prepared = self._described(exchange, self._own, ending.pending, start - self._start + added - begun)
        self._update_seconds = updated - agreed if updated else 0.0
        return prepared

    def _add_up(self, exchange: Exchange) -> None:
        """Add up all workers' summands, and copy the sums to the device."""
        summands = self._summands
        finish(self._simulator)
        start = time.perf_counter()
        if exchange.is_alone:
            summands.take_over()
            self._download_seconds, self._upload_seconds = time.perf_counter() - start, 0.0
            return
        vectors = summands.collect()
        self._download_seconds = time.perf_counter() - start
        sums = summands.open()
        exchange.reduce(FINAL, vectors, sums)
        if exchange.passes_on:
            carried = [self._simulator.get(var) for var in self._training.carried]
            exchange.pass_on([summands.described(), *sums, *carried])
        start = time.perf_counter()
        summands.distribute()
        summands.close()
        self._upload_seconds = time.perf_counter() - start

    def _add_lent(self, exchange: Exchange, lent: _Lent, calls: Calls) -> tuple[Any, Any]:
        """Wait for the remaining lent pieces, and let the device add up all pieces.

        Return the time at which the device had computed the gradients, and the time at which all commands were
        enqueued.
        """
        calls.wait(lent.own.events)
        computed = calls.note_time()
        for rank, piece in lent.last:
            self._summands.receive(rank, piece, calls)
        self._summands.add_lent(exchange, calls)
        self._download_seconds = self._upload_seconds = 0.0
        return computed, calls.note_time()

    def _take_passed(self, arrays: list[np.ndarray]) -> None:
        """Receive the sums from a worker that has a part of the batch."""
        # The device may still be reading the sums of the previous step.
        finish(self._simulator)
        description, *arrays = arrays
        self._summands.lay_out(description)
        sums = self._summands.open()
        for total, array in zip(sums, arrays[: len(sums)], strict=True):
            total[...] = array
        self._summands.distribute()
        for var, value in zip(self._training.carried, arrays[len(sums) :], strict=True):
            self._simulator.set(var, value)

    def _commit(self, agree: Callable[[], None] | None) -> None:
        # There is no need to wait for the update: the device runs it before the next step's commands.
        self._update(*self._taken, before_commit=agree)
        self._taken = []

    def _rehearse(self) -> None:
        if self._update.needs_python(*self._taken):
            with suppress(_Rehearsed):
                self._update(*self._taken, before_commit=_end_rehearsal)


class _Rehearsed(Exception):
    """Raised at the point where an update would store next values."""


def _end_rehearsal() -> None:
    raise _Rehearsed


def _number(value: int) -> np.ndarray:
    """Return an integer as an array, which functions accept without a conversion."""
    return np.array(value, "int64")


class LocalReplica(Replica):
    """Runs independent steps, and averages shared variables every `average_every` steps."""

    def __init__(self, training: LocalTraining, device: str) -> None:
        super().__init__(training, SimulatorOCL(training.propose, device, progress_bar=False))
        self._simulator.add_method("accept", training.accept)
        self._accept = RepeatedMethod(self._simulator["accept"])
        self._own: list[np.ndarray] = []

    def _launch(self, part: Part, exchange: Exchange, begin: Before, ending: Ending | None) -> None:
        begin(CommandList())
        self._own = []
        if part.rows:
            outputs = self._simulator(*part.arguments)
            self._own = list(outputs) if isinstance(outputs, list | tuple) else [outputs]
            return
        # A worker without rows runs no step, so its next values equal its current values.
        for shared, following in self._training.following.items():
            self._simulator.set(following, self._simulator.get(shared))

    def _finish(self, part: Part, exchange: Exchange) -> tuple[list[np.ndarray], Results | None]:
        if (self.steps + 1) % self._training.average_every == 0:
            self._average(part, exchange)
        return self._own, None

    def _average(self, part: Part, exchange: Exchange) -> None:
        """Replace next values with their mean over all workers, weighted by the lengths of the workers' parts."""
        chosen = [self._training.following[self._training.shared[i]] for i in self._training.averaged]
        if part.rows:
            share = part.rows / part.length
            values = [self._simulator.get(shared) for shared in chosen]
            means = exchange.all_reduce(FINAL, [value * value.dtype.type(share) for value in values])
            exchange.pass_on(means)
        else:
            means = exchange.receive_passed()
        for shared, mean in zip(chosen, means, strict=True):
            self._simulator.set(shared, mean)

    def _commit(self, agree: Callable[[], None] | None) -> None:
        self._accept(before_commit=agree)


def replica_of(training: SynchronousTraining | LocalTraining, device: str) -> Replica:
    """Create a replica on `device`, which is named as in `SimulatorOCL`."""
    if isinstance(training, SynchronousTraining):
        return SynchronousReplica(training, device)
    return LocalReplica(training, device)
