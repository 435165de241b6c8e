"""One worker's copy of the state on its device, and what it computes of a step.

A step has two phases. `prepare` computes and waits for the others; it changes no shared variable. `commit` lets the
shared variables have their next values, and waits for nobody. A prepared step that is not committed is forgotten by the
next `prepare`.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from optdb.distributed.exchange import FINAL, Exchange
from optdb.distributed.packing import Summands
from optdb.distributed.plans import LoosePlan, StepPlan
from optdb.distributed.sharding import rounds
from optdb.distributed.sharding.collective import taking_part
from optdb.opencl.simulator import SimulatorOCL
from optdb.opencl.simulator.execution.merging import RepeatedMethod, TrustedMethod, merge_at_once
from optdb.opencl.simulator.packing import finish
from optdb.opencl.simulator.results import PendingResults, Results

__all__ = ["LIFTED", "Part", "Prepared", "Replica", "replica_of"]

#: The modules whose lifters are registered when they are imported.
LIFTED = (rounds,)


@dataclass
class Part:
    """What one worker is given of a batch."""

    #: In the function's order; those that are split have the worker's rows.
    arguments: Sequence[Any]
    #: The number of its rows; 0 if it has none, and then the split arguments are None.
    rows: int
    #: The index of its first row in the batch.
    first: int
    #: The length of the whole batch.
    length: int


@dataclass
class Prepared:
    """What comes of the first phase."""

    #: Outputs that all workers have; only the first one has computed them.
    wholes: list[np.ndarray]
    #: Outputs of this worker's part.
    own: list[np.ndarray]
    #: Seconds: 'compute', 'download' of summands, 'exchange', 'upload' of sums, and 'update' (of the step before).
    seconds: dict[str, float]
    #: The `wholes` that are on their way to the host; None if they are there, or another worker has them.
    pending: Results | None = None


class Replica:
    """A copy of the state on one device; parameters are those of `replica_of`."""

    def __init__(self, plan: Any, simulator: SimulatorOCL) -> None:
        self._plan = plan
        self._simulator = simulator
        #: How many steps the state has seen.
        self.steps = 0
        self._prepared_step: int | None = None
        self._update_seconds = self._download_seconds = self._upload_seconds = 0.0

    @property
    def device(self) -> str:
        """What the device calls itself."""
        return self._simulator.device

    @property
    def adds_on_device(self) -> bool:
        """Whether it can add up the vectors of all workers on its device."""
        return False

    def settle(self, committed: int) -> bool:
        """Commit the prepared step if it is among the first `committed` ones, else forget it.

        Return whether the state is that after `committed` steps.
        """
        self.commit(committed)
        self._prepared_step = None
        return self.steps == committed

    def commit(self, committed: int) -> None:
        """Commit the prepared step if it is among the first `committed` ones."""
        if self._prepared_step is None or self._prepared_step >= committed:
            return
        start = time.perf_counter()
        self._commit()
        self._update_seconds = time.perf_counter() - start
        self.steps = self._prepared_step + 1
        self._prepared_step = None

    def stage(self, part: Part) -> Part:
        """Begin to bring a part to the device, which may be at work on the step before; return what `prepare` takes.

        Any thread may call it. The arguments may change as soon as this returns.
        """
        return part

    def prepare(self, part: Part, exchange: Exchange) -> Prepared:
        """Compute a step, and wait for the other workers; `complete` gets what may be left to do."""
        start = time.perf_counter()
        own, pending = self._prepare(part, exchange)
        seconds = time.perf_counter() - start
        self._prepared_step = self.steps
        moved = {"download": self._download_seconds, "upload": self._upload_seconds}
        compute = seconds - exchange.seconds - sum(moved.values())
        parts = {"compute": compute, **moved, "exchange": exchange.seconds, "update": self._update_seconds}
        return Prepared([], own, parts, pending)

    def complete(self, prepared: Prepared) -> Prepared:
        """Wait until what has been prepared is on the host; return it. Any thread may call it, during later steps."""
        if prepared.pending is not None:
            prepared.wholes, prepared.pending = prepared.pending.wait(), None
        return prepared

    def state(self) -> list[Any]:
        """Return the values of the shared variables, in the plan's order."""
        return [self._simulator.get(shared) for shared in self._plan.shared]

    def load(self, state: Sequence[Any], steps: int) -> None:
        """Take other values, those after `steps` steps."""
        for shared, value in zip(self._plan.shared, state, strict=True):
            self._simulator.set(shared, value)
        self.steps, self._prepared_step = steps, None

    def close(self) -> None:
        """Release the device's memory."""
        self._simulator.close()

    def _prepare(self, part: Part, exchange: Exchange) -> tuple[list[np.ndarray], Results | None]:
        """Return the outputs of this worker's part, and those that all workers have."""
        raise NotImplementedError

    def _commit(self) -> None:
        raise NotImplementedError


class ExactReplica(Replica):
    """Makes exact steps: all replicas apply the same update."""

    def __init__(self, plan: StepPlan, device: str) -> None:
        super().__init__(plan, SimulatorOCL(plan.gradients, device, progress_bar=False))
        self._gradients = TrustedMethod(self._simulator)
        self._simulator.add_method("update", plan.update)
        # The device has nothing else to do then, and other devices wait for it.
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

    def stage(self, part: Part) -> Part:
        if not part.rows:
            return part
        # Those that are not split are arguments of other functions, too.
        same = self._plan.same
        staged = self._gradients.stage([None if i in same else value for i, value in enumerate(part.arguments)])
        arguments = [value if i in same else staged[i] for i, value in enumerate(part.arguments)]
        return Part(arguments, part.rows, part.first, part.length)

    def _prepare(self, part: Part, exchange: Exchange) -> tuple[list[np.ndarray], Results | None]:
        plan = self._plan
        self._summands.close()  # an attempt may have ended in between
        own: list[np.ndarray] = []
        if part.rows:
            exchange.staging = self._staging
            if exchange.lends:
                self._summands.begin_lending(exchange)
            with taking_part(exchange):
                outputs = self._gradients(*part.arguments, *map(_number, (part.length, part.first, exchange.attempt)))
            own = outputs[: len(outputs) - bool(plan.buckets)]
            self._add_up(exchange)
        else:
            self._take_passed(exchange.receive_passed())
        self._taken = [*(part.arguments[i] for i in plan.same), _number(part.length)]
        pending = None
        if self._results is not None and exchange.is_first:
            pending = self._results.begin(*self._taken)
        # When all workers have come here, nobody reads what they have lent.
        self._summands.wait_for_lent()
        return list(own), pending

    @property
    def adds_on_device(self) -> bool:
        return self._summands.are_added_on_device

    def _add_up(self, exchange: Exchange) -> None:
        """Let the device have the sums of all workers' summands."""
        summands = self._summands
        if exchange.lends:
            self._add_lent(exchange)
            return
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

    def _add_lent(self, exchange: Exchange) -> None:
        """Let devices add up what they lend each other, piece by piece; most pieces move while they compute."""
        summands, start = self._summands, 0.0
        last = summands.end_lending(exchange)
        for rank, piece in exchange.lent(FINAL):
            if piece.is_last and not start:
                finish(self._simulator)
                computed = time.perf_counter()
                last.wait()
                start = time.perf_counter()
                self._download_seconds, self._upload_seconds = start - computed, 0.0
            piece.wait()
            summands.receive(rank, piece)
        summands.add_lent(exchange.rank)
        exchange.seconds += time.perf_counter() - start

    def _take_passed(self, arrays: list[np.ndarray]) -> None:
        """Take sums of workers that have a part of the batch."""
        # The device may still read the sums of the step before.
        finish(self._simulator)
        description, *arrays = arrays
        self._summands.lay_out(description)
        sums = self._summands.open()
        for total, array in zip(sums, arrays[: len(sums)], strict=True):
            total[...] = array
        self._summands.distribute()
        for var, value in zip(self._plan.carried, arrays[len(sums) :], strict=True):
            self._simulator.set(var, value)

    def _commit(self) -> None:
        # The next step's commands follow in the queue: nothing waits for the update.
        self._update(*self._taken)
        self._taken = []


def _number(value: int) -> np.ndarray:
    """Return a number as functions take it: what is no array, they convert and compare."""
    return np.array(value, "int64")


class LooseReplica(Replica):
    """Makes steps of its own; values are averaged every so many steps."""

    def __init__(self, plan: LoosePlan, device: str) -> None:
        super().__init__(plan, SimulatorOCL(plan.propose, device, progress_bar=False))
        self._simulator.add_method("accept", plan.accept)

    def _prepare(self, part: Part, exchange: Exchange) -> tuple[list[np.ndarray], Results | None]:
        plan, own = self._plan, []
        if part.rows:
            outputs = self._simulator(*part.arguments)
            own = list(outputs) if isinstance(outputs, list | tuple) else [outputs]
        else:
            # It has no rows, and makes no step.
            for shared, following in plan.following.items():
                self._simulator.set(following, self._simulator.get(shared))
        if (self.steps + 1) % plan.average_every == 0:
            self._average(part, exchange)
        return own, None

    def _average(self, part: Part, exchange: Exchange) -> None:
        """Let the next values be the mean of all workers', weighted by the length of their parts."""
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

    def _commit(self) -> None:
        self._simulator.accept()


def replica_of(plan: StepPlan | LoosePlan, device: str) -> Replica:
    """Put a copy of the state on a device.

    Parameters
    ----------
    plan : StepPlan or LoosePlan
        What it computes.
    device : str
        As `SimulatorOCL` takes it.
    """
    return ExactReplica(plan, device) if isinstance(plan, StepPlan) else LooseReplica(plan, device)
