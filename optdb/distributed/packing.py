"""`Summands`: a worker's summands, and the sums over workers, each packed into one vector per dtype."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from optdb.distributed.exchange import FINAL, Exchange, Packing
from optdb.distributed.training_functions import SynchronousTraining
from optdb.opencl.simulator import SimulatorOCL
from optdb.opencl.simulator.packing import PackedVariables, Share, is_placed
from optdb.opencl.simulator.pieces import PackedTerm, Piece, PiecewiseDownload
from optdb.runtime.scripts import Arrival, Calls

__all__ = ["Summands"]

#: The number of bytes that can be uploaded in the time in which devices wait once for each other. If each device adds
#: up only a share of the sums, uploads are smaller, but the devices wait for each other once more.
SHARED_NBYTES = 1 << 22


class Summands:
    """The summands that a simulator computes, and the sums that its functions read.

    Device values are copied in one transfer for each dtype and direction. Integers may be on the host.
    """

    def __init__(self, simulator: SimulatorOCL, training: SynchronousTraining) -> None:
        self._simulator = simulator
        pairs = list(zip(training.summands, training.sums, strict=True))
        placed = [all(is_placed(simulator, var) for var in pair) for pair in pairs]
        here = [pair for pair, is_here in zip(pairs, placed, strict=True) if is_here]
        self._summands = PackedVariables(simulator, [summand for summand, _ in here])
        self._sums = PackedVariables(simulator, [total for _, total in here])
        self._on_host = [pair for pair, is_here in zip(pairs, placed, strict=True) if not is_here]
        #: The indices of the summands, in groups; the summands in a group are completed together.
        self._buckets = training.buckets
        self._download: PiecewiseDownload | None = None
        #: Maps the ranks of other workers to their summands.
        self._terms: dict[int, PackedTerm] = {}
        #: The share of the sums that this device adds up; None if it adds up all sums.
        self._share: Share | None = None
        self._packing = Packing([], math.inf)
        self._host_sums: list[np.ndarray] = []
        self._ranks = [total.type.ndim for _, total in (*here, *self._on_host)]

    def collect(self) -> list[np.ndarray]:
        """Wait for the device and return the summands as vectors, which must not change until `close`."""
        if self._download is not None:
            self._download.restart()  # discard pieces that a plan sends although no worker receives them
        vectors = self._summands.download()
        if self._sums.shapes != self._summands.shapes:
            self._sums.lay_out(self._summands.shapes)
        values = [np.asarray(self._simulator.get(summand)) for summand, _ in self._on_host]
        return [*vectors, *self._pack(values)]

    def _pack(self, values: Sequence[np.ndarray]) -> list[np.ndarray]:
        """Pack the summands on the host, and allocate vectors for their sums."""
        self._packing = Packing(values, math.inf)
        packed = self._packing.packed(values)
        self._host_sums = list(map(np.empty_like, packed))
        return packed

    def open(self) -> list[np.ndarray]:
        """Return vectors for the sums, in the order of the vectors from `collect`."""
        return [*self._sums.open(), *self._host_sums]

    def distribute(self) -> None:
        """Set the simulator's sums to the contents of the vectors from `open`."""
        self._sums.upload()
        for (_, total), value in zip(self._on_host, self._packing.unpacked(self._host_sums), strict=True):
            self._simulator.set(total, value)

    @property
    def queue(self) -> Any:
        """The device's queue."""
        return self._sums.queue

    @property
    def are_added_on_device(self) -> bool:
        """Whether the device can add up all workers' vectors."""
        return not self._on_host and self._sums.are_copied

    def take_over(self) -> None:
        """If no other worker has a part, use the summands as the sums without copying them from the device."""
        self._summands.pack()
        if self._sums.shapes != self._summands.shapes:
            self._sums.lay_out(self._summands.shapes)
        self._sums.copy_from(self._summands)
        for summand, total in self._on_host:
            self._simulator.set(total, self._simulator.get(summand))

    def close(self) -> None:
        """Allow the simulator to compute the next summands."""
        self._summands.release()
        self._sums.release()

    # Methods for devices that add up the summands of all workers

    def begin_lending(self, exchange: Exchange) -> None:
        """Wait until the previous step's summands have been read, and lend each new summand once it is computed."""
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
        """Lend the remaining summands, and return their first piece, which is perhaps not on the host yet."""
        assert self._download is not None, "`begin_lending` comes first"
        pieces = self._download.end()
        if self._sums.shapes != self._summands.shapes:
            self._sums.lay_out(self._summands.shapes)
        exchange.lend(FINAL, pieces)
        self._share = self._share_of(exchange)
        if self._share is not None:
            exchange.lend_totals(FINAL, self._sums.on_host)
        return next(piece for piece in pieces if piece.is_last)

    def _share_of(self, exchange: Exchange) -> Share | None:
        """Return this device's share of the sums; None if dividing the sums among devices would hardly reduce uploads.

        If the sums are divided among n devices, each device uploads 2 (n - 1) / n times the size of the sums;
        otherwise, each device uploads n - 1 times this size.
        """
        rank, count = exchange.share
        saved = (count - 1) * (1 - 2 / count) * self._sums.nbytes
        return (rank, count) if saved > SHARED_NBYTES else None

    def receive(self, rank: int, piece: Piece, calls: Calls) -> None:
        """Wait until a piece of another worker's summands is on the host, and start copying it to the device."""
        if rank not in self._terms:
            self._terms[rank] = PackedTerm(self._sums)
            self._terms[rank].restart()
        self._terms[rank].receive(piece, calls, self._share)

    def add_lent(self, exchange: Exchange, calls: Calls) -> None:
        """Let the device set the sums to the totals of all workers' summands, added in rank order.

        If each device adds up a share, the other devices then upload the totals of this device's share. The other
        workers wait until the device has read their pieces and totals, and only then lend new pieces.
        """
        ranks = sorted([exchange.rank, *self._terms])
        self._sums.add_up(self._summands, [self._terms.get(rank) for rank in ranks], calls, self._share)
        reading = [term.reading for term in self._terms.values()]
        if self._share is not None:
            _, count = self._share
            calls.wait(self._sums.download_share(self._share, calls))
            exchange.meet(calls)
            shares = {(rank, count): totals for rank, totals in exchange.lent_totals(FINAL).items()}
            reading.append(Arrival(self._sums.upload_shares(shares, calls)))
        exchange.reading(reading)

    # Methods for workers without a part of the batch, which have computed no summands

    def described(self) -> np.ndarray:
        """Return the shapes of the sums as one vector of integers."""
        return np.array([n for shape in (*self._sums.shapes, *self._packing.shapes) for n in shape], "int64")

    def lay_out(self, description: np.ndarray) -> None:
        """Allocate the sums; `description` contains their shapes, as another worker's `described` returned them."""
        lengths = iter(description.tolist())
        shapes = [tuple(next(lengths) for _ in range(rank)) for rank in self._ranks]
        count = len(shapes) - len(self._on_host)
        if self._sums.shapes != shapes[:count]:
            self._sums.lay_out(shapes[:count])
        pairs = zip(self._on_host, shapes[count:], strict=True)
        self._pack([np.empty(shape, total.type.dtype) for (_, total), shape in pairs])
