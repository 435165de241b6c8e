"""A worker's summands of a step, and their sums, as vectors: one for each dtype (`Summands`)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from optdb.distributed.exchange import FINAL, Exchange
from optdb.distributed.plans import StepPlan
from optdb.opencl.simulator import SimulatorOCL
from optdb.opencl.simulator.packing import PackedTerm, PackedVariables, Piece, PiecewiseDownload, is_placed
from optdb.runtime.scripts import Calls

__all__ = ["Summands"]


class Summands:
    """The summands that a simulator has computed, and the sums that its next functions take.

    What is on the device is one transfer for each dtype, both ways. Whole numbers may be on the host.

    Parameters
    ----------
    simulator : SimulatorOCL
        Has the functions of the plan.
    plan : StepPlan
        Names the shared variables.
    """

    def __init__(self, simulator: SimulatorOCL, plan: StepPlan) -> None:
        self._simulator = simulator
        pairs = list(zip(plan.summands, plan.sums, strict=True))
        placed = [all(is_placed(simulator, var) for var in pair) for pair in pairs]
        here = [pair for pair, is_here in zip(pairs, placed, strict=True) if is_here]
        self._summands = PackedVariables(simulator, [summand for summand, _ in here])
        self._sums = PackedVariables(simulator, [total for _, total in here])
        self._on_host = [pair for pair, is_here in zip(pairs, placed, strict=True) if not is_here]
        #: The numbers of the summands that are complete together.
        self._buckets = plan.buckets
        self._download: PiecewiseDownload | None = None
        #: By rank, what comes from other workers' devices.
        self._terms: dict[int, PackedTerm] = {}
        #: The shapes of sums on the host.
        self._host_shapes: list[tuple[int, ...]] = []
        self._ranks = [var.type.ndim for var in (*(total for _, total in here), *(total for _, total in self._on_host))]

    def collect(self) -> list[np.ndarray]:
        """Wait for the device; return the summands as vectors, which are not to be changed, until `close`."""
        if self._download is not None:
            self._download.restart()  # a plan may let pieces leave that nobody takes now
        vectors = self._summands.download()
        if self._sums.shapes != self._summands.shapes:
            self._sums.lay_out(self._summands.shapes)
        values = [np.asarray(self._simulator.get(summand)) for summand, _ in self._on_host]
        self._host_shapes = [value.shape for value in values]
        return [*vectors, *(np.concatenate([values[i].ravel() for i in some]) for some in self._alike())]

    def open(self) -> list[np.ndarray]:
        """Return vectors for the sums, in the order of `collect`."""
        sizes = [int(np.prod(shape)) for shape in self._host_shapes]
        self._host_sums = [
            np.empty(sum(sizes[i] for i in some), self._on_host[some[0]][1].type.dtype) for some in self._alike()
        ]
        return [*self._sums.open(), *self._host_sums]

    def distribute(self) -> None:
        """Let the simulator have the sums that were written into what `open` has returned."""
        self._sums.upload()
        for some, vector in zip(self._alike(), self._host_sums, strict=True):
            start = 0
            for i in some:
                stop = start + int(np.prod(self._host_shapes[i]))
                self._simulator.set(self._on_host[i][1], vector[start:stop].reshape(self._host_shapes[i]))
                start = stop

    @property
    def queue(self) -> Any:
        """The device's queue."""
        return self._sums.queue

    @property
    def are_added_on_device(self) -> bool:
        """Whether the device can add up the vectors of all workers: all of them have to be brought there anyway."""
        return not self._on_host and self._sums.are_copied

    def take_over(self) -> None:
        """Let the sums be the summands: there is no other worker with a part. Nothing leaves the device."""
        self._summands.pack()
        if self._sums.shapes != self._summands.shapes:
            self._sums.lay_out(self._summands.shapes)
        self._sums.copy_from(self._summands)
        for summand, total in self._on_host:
            self._simulator.set(total, self._simulator.get(summand))

    def close(self) -> None:
        """Let the simulator compute the next summands."""
        self._summands.release()
        self._sums.release()

    # For devices that add up what others lend them

    def begin_lending(self, exchange: Exchange) -> None:
        """Let the others have summands as soon as the device has computed them, from now on.

        It waits until they have read those of the step before.
        """
        if self._download is None:
            self._download = PiecewiseDownload(self._summands)
        download = self._download
        download.restart()
        exchange.wait_for_readers()
        for term in self._terms.values():
            term.restart()

        def completed(bucket: int, arrays: Sequence[Any]) -> None:
            download.enqueue(dict(zip(self._buckets[bucket], arrays, strict=True)))

        exchange.on_completed = completed

    def end_lending(self, exchange: Exchange) -> Piece:
        """Let the others have all summands; return those that were left, which may be on their way."""
        assert self._download is not None, "`begin_lending` comes first"
        pieces = self._download.end()
        if self._sums.shapes != self._summands.shapes:
            self._sums.lay_out(self._summands.shapes)
        exchange.lend(FINAL, pieces)
        return pieces[-1]

    def receive(self, rank: int, piece: Piece, calls: Calls) -> None:
        """Wait until a piece of another worker's summands is complete on the host; begin to bring it to the device."""
        if rank not in self._terms:
            self._terms[rank] = PackedTerm(self._sums)
            self._terms[rank].restart()
        self._terms[rank].receive(piece, calls)

    def add_lent(self, exchange: Exchange, calls: Calls) -> None:
        """Let the sums be those of the summands of all workers, added up on the device in the order of ranks.

        It returns when `calls` has got the commands; before others lend anew, they wait until the device has read
        theirs.
        """
        ranks = sorted([exchange.rank, *self._terms])
        self._sums.add_up(self._summands, [self._terms.get(rank) for rank in ranks], calls)
        exchange.reading([term.reading for term in self._terms.values()])

    # For workers without a part, which have computed no summands

    def described(self) -> np.ndarray:
        """Return the shapes as one vector of whole numbers."""
        return np.array([n for shape in (*self._sums.shapes, *self._host_shapes) for n in shape], "int64")

    def lay_out(self, description: np.ndarray) -> None:
        """Prepare for sums of shapes that another worker has described."""
        lengths = iter(description.tolist())
        shapes = [tuple(next(lengths) for _ in range(rank)) for rank in self._ranks]
        count = len(shapes) - len(self._on_host)
        if self._sums.shapes != shapes[:count]:
            self._sums.lay_out(shapes[:count])
        self._host_shapes = shapes[count:]

    def _alike(self) -> list[list[int]]:
        """Return the numbers of the summands on the host, those of one dtype together."""
        found: dict[Any, list[int]] = {}
        for i, (summand, _) in enumerate(self._on_host):
            found.setdefault(summand.type.dtype, []).append(i)
        return list(found.values())
