"""A worker's copy of the state on its device, and the worker's part of a step.

A step has two phases. `prepare` computes and waits for the other workers; it changes no shared variable. `commit`
stores the next values of shared variables, and waits for no other worker. The next `prepare` discards a prepared step
that was not committed.

`prepare` can also run in stages: `launch` starts the device, `collect` and `finish` wait for the other workers. A step
may be launched while the device still computes the one before; meanwhile, its arguments are copied to the device.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from optdb.device.plans.plan import Before
from optdb.distributed.agreements import Agreement
from optdb.distributed.exchange import FINAL, Exchange
from optdb.distributed.packing import Summands
from optdb.distributed.sharding import rounds
from optdb.distributed.sharding.collective import taking_part
from optdb.distributed.step_plans import LoosePlan, StepPlan
from optdb.opencl.simulator import SimulatorOCL
from optdb.opencl.simulator.execution.merging import RepeatedMethod, TrustedMethod, merge_at_once
from optdb.opencl.simulator.packing import Piece, finish
from optdb.opencl.simulator.results import PendingResults, Results
from optdb.runtime.commands import CommandList
from optdb.runtime.scripts import IMMEDIATE, Calls, Script, can_script

__all__ = ["LIFTED", "Part", "Prepared", "Replica", "replica_of"]

#: Modules that register lifters when they are imported.
LIFTED = (rounds,)


@dataclass
class Part:
    """One worker's part of a batch."""

    #: Arguments in the function's order; split arguments contain the worker's rows.
    arguments: Sequence[Any]
    #: The number of the worker's rows. If it is 0, split arguments are None.
    rows: int
    #: The index of the worker's first row in the batch.
    first: int
    #: The length of the whole batch.
    length: int


@dataclass
class Prepared:
    """The results of the first phase."""

    #: Outputs that are the same for all workers; only the first worker computes them.
    wholes: list[np.ndarray]
    #: Outputs for this worker's part.
    own: list[np.ndarray]
    #: Seconds: 'compute', 'download' of summands, 'exchange', 'upload' of sums, and 'update' of the previous step.
    seconds: dict[str, float]
    #: The `wholes` while they are copied to the host; None afterwards, and on other workers.
    pending: Results | None = None


class Replica:
    """A copy of the state on one device; see `replica_of` for the parameters."""

    def __init__(self, plan: Any, simulator: SimulatorOCL) -> None:
        self._plan = plan
        self._simulator = simulator
        #: The number of steps that the state includes.
        self.steps = 0
        self._prepared_step: int | None = None
        self._update_seconds = self._download_seconds = self._upload_seconds = 0.0
        #: The part and the exchange of the launched step.
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
        """Commit the prepared step if it is among the first `committed` ones, else discard it.

        Return whether the state now includes exactly `committed` steps.
        """
        self.commit(committed)
        self._prepared_step = None
        return self.steps == committed

    def commit(self, committed: int, agree: Callable[[], None] | None = None) -> None:
        """Commit the prepared step if it is among the first `committed` ones.

        `agree` is called right before values are stored; if it raises, nothing is stored.
        """
        if self._prepared_step is None or self._prepared_step >= committed:
            return
        start = time.perf_counter()
        self._commit(agree)
        self._update_seconds = time.perf_counter() - start
        self.steps = self._prepared_step + 1
        self._prepared_step = None

    def stage(self, part: Part) -> Part:
        """Begin to copy a part to the device, which may still compute the step before; return the part for `prepare`.

        Any thread may call this. The arguments may change as soon as it returns.
        """
        return part

    def prepare(self, part: Part, exchange: Exchange) -> Prepared:
        """Compute a step, and wait for the other workers. `complete` waits for results that are still being copied."""
        self.launch(part, exchange)
        self.collect()
        prepared = self.finish()
        self._rehearse()
        return prepared

    def launch(
        self, part: Part, exchange: Exchange, before: Before | None = None, ending: Ending | None = None
    ) -> None:
        """Launch a step on the device.

        Parameters
        ----------
        part : Part
            This worker's part.
        exchange : Exchange
            The exchange with the other workers.
        before : callable, optional
            Ends the previous step, which the device may still compute. It is called before anything that depends on
            the state or overwrites results of the previous step; if it raises, the step is not launched. Its argument
            is the list of the step's first commands, which may be empty; it returns whether it has enqueued them.
        ending : Ending, optional
            How `before` ends the previous step; without it, the list of first commands is empty.
        """

        def begin(first: CommandList) -> bool:
            leads = before is not None and before(first)
            self._under_way, self._start = (part, exchange), time.perf_counter()
            return leads

        self._launch(part, exchange, begin, ending)

    def collect(self) -> None:
        """Wait for other workers' pieces, except for the last ones."""

    def finish(self) -> Prepared:
        """Wait for the other workers; return the prepared results of the launched step."""
        part, exchange = self._launched()
        own, pending = self._finish(part, exchange)
        prepared = self._described(exchange, own, pending, time.perf_counter() - self._start)
        self._under_way = None
        self._prepared_step = self.steps
        return prepared

    def ending(self, agreement: Agreement) -> Ending | None:
        """Return a script that finishes, agrees and commits, almost without Python; None if Python is needed.

        Call it after `collect`.
        """
        return None

    def end(self, ending: Ending, first: CommandList) -> Prepared:
        """Finish and commit a step by running `ending`; also enqueue the `first` commands of the next step."""
        raise NotImplementedError

    def _launched(self) -> tuple[Part, Exchange]:
        """Return the part and the exchange of the launched step."""
        assert self._under_way is not None, "`launch` comes first"
        return self._under_way

    def _described(
        self, exchange: Exchange, own: list[np.ndarray], pending: Results | None, seconds: float
    ) -> Prepared:
        """Return the description of a prepared step, which took `seconds`."""
        moved = {"download": self._download_seconds, "upload": self._upload_seconds}
        compute = seconds - exchange.seconds - sum(moved.values())
        parts = {"compute": compute, **moved, "exchange": exchange.seconds, "update": self._update_seconds}
        return Prepared([], own, parts, pending)

    def complete(self, prepared: Prepared) -> Prepared:
        """Wait until all that was prepared is on the host; return it. Any thread may call this, during later steps."""
        if prepared.pending is not None:
            prepared.wholes, prepared.pending = prepared.pending.wait(), None
        return prepared

    def state(self) -> list[Any]:
        """Return the values of the shared variables, in the plan's order."""
        return [self._simulator.get(shared) for shared in self._plan.shared]

    def load(self, state: Sequence[Any], steps: int) -> None:
        """Set new values, which are the state after `steps` steps."""
        for shared, value in zip(self._plan.shared, state, strict=True):
            self._simulator.set(shared, value)
        self.steps, self._prepared_step = steps, None

    def close(self) -> None:
        """Release the device's memory."""
        self._simulator.close()

    def _launch(self, part: Part, exchange: Exchange, begin: Before, ending: Ending | None) -> None:
        """Call `begin`, and compute the part; arguments may be copied to the device before that."""
        raise NotImplementedError

    def _finish(self, part: Part, exchange: Exchange) -> tuple[list[np.ndarray], Results | None]:
        """Return the outputs for this worker's part, and the results that are the same for all workers."""
        raise NotImplementedError

    def _commit(self, agree: Callable[[], None] | None) -> None:
        raise NotImplementedError

    def _rehearse(self) -> None:
        """Raise the errors that the commit would raise before it stores anything."""


@dataclass
class _Lent:
    """The pieces that the workers of a step lend each other; most are copied while the devices compute."""

    #: This worker's own last piece.
    own: Piece
    #: Ranks and pieces of the other workers, in the order in which the pieces become ready.
    pieces: Iterator[tuple[int, Piece]]
    #: The last piece of each of the other workers.
    last: list[tuple[int, Piece]] = field(default_factory=list)


@dataclass
class Ending:
    """A script that finishes a step, agrees with the other workers, and commits the step, almost without Python."""

    script: Script
    agreement: Agreement
    #: The arguments of the update.
    taken: list[Any]
    #: The results that are the same for all workers.
    pending: Results | None
    #: The times at which the script reaches its named points, in order.
    times: dict[str, Any]
    #: Whether the script has enqueued the first commands of the next step.
    leads: bool = False


class ExactReplica(Replica):
    """Makes exact steps: all replicas apply the same update."""

    def __init__(self, plan: StepPlan, device: str) -> None:
        super().__init__(plan, SimulatorOCL(plan.gradients, device, progress_bar=False))
        self._gradients = TrustedMethod(self._simulator)
        self._simulator.add_method("update", plan.update)
        # Merge at once: the device is idle then, and other devices wait for it.
        merge_at_once(self._simulator["update"])
        self._update = RepeatedMethod(self._simulator["update"])
        self._results: PendingResults | None = None
        if plan.results is not None:
            self._simulator.add_method("results", plan.results)
            merge_at_once(self._simulator["results"])
            self._results = PendingResults(self._simulator["results"])
        self._summands = Summands(self._simulator, plan)
        self._taken: list[Any] = []
        self._staging: dict[Any, Any] = {}
        #: The launched step's outputs for this worker's part, and the pieces lent for it.
        self._own: list[np.ndarray] = []
        self._lent: _Lent | None = None

    def stage(self, part: Part) -> Part:
        if not part.rows:
            return part
        # Arguments that are not split are also arguments of other functions.
        same = self._plan.same
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
        self._summands.close()  # an aborted attempt may have left it open
        if part.rows:
            self._compute(part, exchange)

    def _compute(self, part: Part, exchange: Exchange, before: Before | None = None, at_once: bool = True) -> None:
        """Let the device compute gradients."""
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
        """Return the arguments of the update and of the results."""
        return [*(part.arguments[i] for i in self._plan.same), _number(part.length)]

    def _results_of(self, exchange: Exchange) -> PendingResults | None:
        """Return the object that computes the common results; None on workers other than the first."""
        return self._results if exchange.is_first else None

    @property
    def adds_on_device(self) -> bool:
        return self._summands.are_added_on_device

    def ending(self, agreement: Agreement) -> Ending | None:
        queue = self._summands.queue
        if self._lent is None or not agreement.is_native or not can_script(queue):
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
        """Finish and commit a step. Also enqueue the `first` commands of the next one, if they need no Python."""
        script, times, start = ending.script, ending.times, time.perf_counter()
        if not first.needs_python:
            script.enqueue(first)
        script.flush(self._summands.queue)
        self._prepared_step, self._taken = self.steps, ending.taken
        try:
            script.run()
            ending.leads = not first.needs_python
        except Exception:
            # Once all have agreed, the step must be committed.
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
        """Put the sums of all workers' summands on the device."""
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
            carried = [self._simulator.get(var) for var in self._plan.carried]
            exchange.pass_on([summands.described(), *sums, *carried])
        start = time.perf_counter()
        summands.distribute()
        summands.close()
        self._upload_seconds = time.perf_counter() - start

    def _add_lent(self, exchange: Exchange, lent: _Lent, calls: Calls) -> tuple[Any, Any]:
        """Make the device add up the lent pieces, after waiting for the last ones.

        Return two recorded times: when this device has computed the gradients, and when it has received the commands.
        """
        calls.wait(lent.own.events)
        computed = calls.note_time()
        for rank, piece in lent.last:
            self._summands.receive(rank, piece, calls)
        self._summands.add_lent(exchange, calls)
        self._download_seconds = self._upload_seconds = 0.0
        return computed, calls.note_time()

    def _take_passed(self, arrays: list[np.ndarray]) -> None:
        """Receive the sums from workers that have a part of the batch."""
        # The device may still read the sums of the previous step.
        finish(self._simulator)
        description, *arrays = arrays
        self._summands.lay_out(description)
        sums = self._summands.open()
        for total, array in zip(sums, arrays[: len(sums)], strict=True):
            total[...] = array
        self._summands.distribute()
        for var, value in zip(self._plan.carried, arrays[len(sums) :], strict=True):
            self._simulator.set(var, value)

    def _commit(self, agree: Callable[[], None] | None) -> None:
        # Do not wait for the update: the next step's commands follow it in the queue.
        self._update(*self._taken, before_commit=agree)
        self._taken = []

    def _rehearse(self) -> None:
        if self._update.needs_python(*self._taken):
            with suppress(_Rehearsed):
                self._update(*self._taken, before_commit=_end_rehearsal)


class _Rehearsed(Exception):
    """An update has reached the point where it would store next values."""


def _end_rehearsal() -> None:
    raise _Rehearsed


def _number(value: int) -> np.ndarray:
    """Return an integer as an array: functions would convert and compare other values."""
    return np.array(value, "int64")


class LooseReplica(Replica):
    """Makes independent steps; values are averaged every `average_every` steps."""

    def __init__(self, plan: LoosePlan, device: str) -> None:
        super().__init__(plan, SimulatorOCL(plan.propose, device, progress_bar=False))
        self._simulator.add_method("accept", plan.accept)
        self._accept = RepeatedMethod(self._simulator["accept"])
        self._own: list[np.ndarray] = []

    def _launch(self, part: Part, exchange: Exchange, begin: Before, ending: Ending | None) -> None:
        begin(CommandList())
        self._own = []
        if part.rows:
            outputs = self._simulator(*part.arguments)
            self._own = list(outputs) if isinstance(outputs, list | tuple) else [outputs]
            return
        # A worker without rows makes no step: its next values equal its present values.
        for shared, following in self._plan.following.items():
            self._simulator.set(following, self._simulator.get(shared))

    def _finish(self, part: Part, exchange: Exchange) -> tuple[list[np.ndarray], Results | None]:
        if (self.steps + 1) % self._plan.average_every == 0:
            self._average(part, exchange)
        return self._own, None

    def _average(self, part: Part, exchange: Exchange) -> None:
        """Replace next values with the mean over all workers, weighted by the length of their parts."""
        chosen = [self._plan.following[self._plan.shared[i]] for i in self._plan.averaged]
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


def replica_of(plan: StepPlan | LoosePlan, device: str) -> Replica:
    """Put a copy of the state on a device.

    Parameters
    ----------
    plan : StepPlan or LoosePlan
        The computation of a step.
    device : str
        The device, as for `SimulatorOCL`.
    """
    return ExactReplica(plan, device) if isinstance(plan, StepPlan) else LooseReplica(plan, device)
