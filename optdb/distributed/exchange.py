"""All-reduces over workers (`Exchange`): in a ring, or by direct exchange for two workers and for small arrays.

If all workers are in one process, each worker adds up one slice of all vectors and writes the total to all workers'
sums. All workers add in the same order, so their results are bitwise equal.
"""

from __future__ import annotations

import itertools
import math
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from optdb.distributed.errors import Aborted, WorkerTimeout

if TYPE_CHECKING:
    from optdb.opencl.simulator.pieces import Piece
    from optdb.runtime.all_reduce import Member
    from optdb.runtime.scripts import Calls

__all__ = ["Exchange", "Link", "Mailbox", "Packing"]

#: Vectors with fewer bytes than this are sent directly to all other workers, since a ring needs more messages in a row.
SMALL_BYTES = 64 * 1024
#: Arrays with fewer bytes than this are copied into one vector, since a separate message frame for an array takes
#: longer than the copy.
PACKED_BYTES = 64 * 1024
#: Numbers that identify two exchanges: the sum at the end of a step, and the first worker's message to workers without
#: a part of the batch.
FINAL, PASSED_ON = -1, -2
#: The size in bytes of the blocks that threads add up; a block stays in a core's cache until its sums are copied.
BLOCK_BYTES = 256 * 1024

Tag = tuple[int, ...]


class Link:
    """A worker's connection to the other workers, which are identified by rank."""

    #: Whether a worker may overwrite the arrays that it receives.
    received_is_writable: bool
    #: Whether received arrays share memory with the sender's arrays.
    shares_memory: bool
    #: Whether each device reads and adds up the arrays of the other workers.
    lends: bool
    #: The `Member` with which the worker's device takes part in sums; None if some workers are in another process.
    member: Member | None = None
    #: Maps each rank to objects whose `wait` returns once the rank's device has read the pieces that other ranks lent.
    readers: list[Sequence[Any]]

    def send(self, rank: int, tag: Tag, arrays: Sequence[Any]) -> None:
        """Send arrays without waiting; within a process, `Piece` objects can also be sent.

        The arrays must not change until the sum is known.
        """
        raise NotImplementedError

    def receive(self, rank: int, tag: Tag) -> list[Any]:
        """Wait for arrays from a worker; raise `Aborted` or `WorkerTimeout` on failure."""
        raise NotImplementedError

    def refuse(self, missing: int | None) -> NoReturn:
        """Raise `WorkerTimeout` if a worker is missing, else `Aborted`; only links with a `member` can do this."""
        raise NotImplementedError


class Mailbox:
    """Messages for one worker, which any thread may deliver; taking a message waits for at most `timeout` seconds."""

    def __init__(self, timeout: float) -> None:
        self.timeout = timeout
        self._messages: dict[tuple[Any, Tag], Sequence[Any]] = {}
        self._changed = threading.Condition()
        #: The number of the latest attempt that was begun or aborted.
        self._oldest = 0
        self._abort_reason: str | None = None

    def begin(self, attempt: int) -> None:
        """Discard messages from earlier attempts unless this attempt was already aborted."""
        with self._changed:
            if attempt <= self._oldest:
                return
            self._oldest, self._abort_reason = attempt, None
            self._messages = {key: value for key, value in self._messages.items() if key[1][0] >= attempt}

    def deliver(self, sender: Any, tag: Tag, arrays: Sequence[Any]) -> None:
        """Store a message, unless a later attempt has begun."""
        with self._changed:
            if tag[0] >= self._oldest:
                self._messages[sender, tag] = arrays
                self._changed.notify_all()

    def abort(self, attempt: int, reason: str) -> None:
        """Make all waits in this attempt and in earlier attempts raise `Aborted`."""
        with self._changed:
            if attempt >= self._oldest:
                self._oldest, self._abort_reason = attempt, reason
                self._changed.notify_all()

    def take(self, sender: Any, tag: Tag) -> list[Any]:
        """Wait for a message and return its arrays."""
        end = time.monotonic() + self.timeout
        with self._changed:
            while (sender, tag) not in self._messages:
                if self._abort_reason is not None and tag[0] <= self._oldest:
                    raise Aborted(self._abort_reason)
                left = end - time.monotonic()
                if left <= 0:
                    self.refuse(sender)
                self._changed.wait(left)
            return list(self._messages.pop((sender, tag)))

    def refuse(self, sender: Any = None) -> NoReturn:
        """Raise `WorkerTimeout` for a sender that did not answer; without a sender, raise `Aborted` with the reason."""
        if sender is not None:
            raise WorkerTimeout(f"received no part of a sum from {sender} within {self.timeout:g} seconds")
        raise Aborted(self._abort_reason or "the step was aborted")


class Exchange:
    """Lets one worker take part in sums over workers, during one attempt at a step.

    The first `active` workers, in rank order, have a part of the batch; the other `idle` workers only receive results.
    The `attempt` number is unique among the attempts at all steps.
    """

    def __init__(
        self, link: Link, rank: int, active: int, idle: int, attempt: int, meet: Callable[[Calls], None] | None = None
    ) -> None:
        self._link, self._meet = link, meet
        self.rank, self._active, self._idle = rank, active, idle
        self.attempt = attempt
        self._seconds = 0.0
        #: The `ExchangeRound` objects for device arrays, which are shared by the exchanges of several steps.
        self.staging: dict[Any, Any] = {}
        #: A function that is called with a bucket's number and arrays when the bucket's commands are enqueued; the
        #: function may enqueue more commands.
        self.on_completed: Callable[[int, Sequence[Any]], None] | None = None
        #: A function that is called once, when the step's first commands are enqueued.
        self.on_launched: Callable[[], None] | None = None

    def all_reduce(self, number: int, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
        """Return the sums of arrays over all workers that have a part of the batch.

        The arrays' shapes and dtypes, and the sum's `number` within the step, must be equal on all workers.
        """
        if self._active == 1 or not arrays:
            return list(arrays)
        start = time.perf_counter()
        arrays = list(map(np.asarray, arrays))
        direct = self._active == 2 or sum(array.nbytes for array in arrays) <= SMALL_BYTES
        # Copy the arrays into vectors, because the ring all-reduce overwrites its input.
        packing = Packing(arrays, PACKED_BYTES if direct else math.inf)
        vectors = packing.packed(arrays)
        totals = packing.unpacked(self._everyone(number, vectors) if direct else self._ring(number, vectors))
        self.note(time.perf_counter() - start)
        return totals

    def exchange(
        self,
        number: int,
        arrays: Sequence[np.ndarray],
        combine: Callable[[list[Sequence[np.ndarray]]], list[np.ndarray]],
    ) -> list[np.ndarray]:
        """Call `combine` with a list of all workers' arrays, in rank order, and return its result.

        All workers pass the same `number` and equally many arrays. The arrays must not be written until the step is
        over.
        """
        start = time.perf_counter()
        results = combine(self._exchanged((self.attempt, number, 0), arrays))
        self.note(time.perf_counter() - start)
        return results

    @property
    def member(self) -> Member | None:
        """The `Member` of the worker's device; None if all-reduces run only in Python."""
        return self._link.member

    def refuse(self, missing: int | None) -> NoReturn:
        """Raise the error that explains why C code failed: the step was aborted, or a worker was late."""
        self._link.refuse(missing)

    def note(self, seconds: float) -> None:
        """Add `seconds` to the time spent on sums."""
        self._seconds += seconds

    @property
    def seconds(self) -> float:
        """Time in seconds spent on sums."""
        return self._seconds + (0.0 if self.member is None else self.member.seconds)

    def reduce(self, number: int, vectors: Sequence[np.ndarray], sums: Sequence[np.ndarray]) -> None:
        """Add up the vectors of all workers that have a part, and write the totals to `sums`; see `all_reduce`."""
        start = time.perf_counter()
        if self._active == 1:
            for vector, total in zip(vectors, sums, strict=True):
                total[...] = vector
        elif self._link.shares_memory:
            self._in_slices(number, vectors, sums)
        elif self._active == 2 or sum(vector.nbytes for vector in vectors) <= SMALL_BYTES:
            self._everyone(number, vectors, sums)
        else:
            for vector, total in zip(vectors, sums, strict=True):
                total[...] = vector
            self._ring(number, list(sums))
        self.note(time.perf_counter() - start)

    def lend(self, number: int, pieces: Sequence[Piece]) -> None:
        """Let other workers read each piece of this worker's vectors once the piece is complete; return immediately.

        The pieces must not be written until all workers have prepared the step and `wait_for_readers` has returned.
        """
        for rank in self._others:
            self._link.send(rank, (self.attempt, number, 0), pieces)

    def lent(self, number: int) -> Iterator[tuple[int, Piece]]:
        """Yield the pieces that other workers lend, each with the worker's rank; some pieces may be incomplete."""
        lists = [
            [(rank, piece) for piece in self._link.receive(rank, (self.attempt, number, 0))] for rank in self._others
        ]
        for turn in itertools.zip_longest(*lists):
            yield from filter(None, turn)

    @property
    def share(self) -> tuple[int, int]:
        """The worker's rank, and the number of workers with a part of the batch."""
        return self.rank, self._active

    def lend_totals(self, number: int, vectors: Sequence[np.ndarray]) -> None:
        """Lend host vectors to other workers; after `meet`, the vectors contain this worker's share of the totals."""
        for rank in self._others:
            self._link.send(rank, (self.attempt, number, 1), vectors)

    def lent_totals(self, number: int) -> dict[int, list[np.ndarray]]:
        """Return a dict from each other worker's rank to the host vectors that the worker lends with `lend_totals`."""
        return {rank: self._link.receive(rank, (self.attempt, number, 1)) for rank in self._others}

    def meet(self, calls: Calls) -> None:
        """Make `calls` wait until all workers call this method; raise `Aborted` if a worker fails or is late."""
        assert self._meet is not None, "only workers that lend meet"
        self._meet(calls)

    def reading(self, arrivals: Sequence[Any]) -> None:
        """Store `arrivals`; with them, other workers wait until this worker has read the pieces that they lent."""
        self._link.readers[self.rank] = arrivals

    def wait_for_readers(self) -> None:
        """Wait until the other workers have read the pieces that this worker lent them."""
        for rank in self._others:
            for arrival in self._link.readers[rank]:
                arrival.wait()

    def completed(self, bucket: int, arrays: Sequence[Any]) -> None:
        """Report that a bucket of summands has been computed."""
        if self.on_completed is not None:
            self.on_completed(bucket, arrays)

    def launched(self) -> None:
        """Report that the step's first commands are enqueued."""
        if self.on_launched is not None:
            on_launched, self.on_launched = self.on_launched, None
            on_launched()

    @property
    def lends(self) -> bool:
        """Whether devices add up each other's vectors, for which several workers must each have a part of the batch."""
        return self._link.lends and not self._idle and self._active > 1

    @property
    def is_first(self) -> bool:
        """Whether this worker returns the values that are equal on all workers."""
        return self.rank == 0

    @property
    def is_alone(self) -> bool:
        """Whether this worker is the only one."""
        return self._active == 1 and not self._idle

    @property
    def passes_on(self) -> bool:
        """Whether this worker sends values to workers without a part of the batch."""
        return self.rank == 0 and self._idle > 0

    def pass_on(self, arrays: Sequence[np.ndarray]) -> None:
        """On the first worker, send arrays to the workers without a part of the batch; on other workers, do nothing."""
        if self.rank:
            return
        for rank in range(self._active, self._active + self._idle):
            self._link.send(rank, (self.attempt, PASSED_ON, 0), [np.array(array) for array in arrays])

    def receive_passed(self) -> list[np.ndarray]:
        """Return the arrays that the first worker sent with `pass_on`."""
        return self._link.receive(0, (self.attempt, PASSED_ON, 0))

    @property
    def _others(self) -> list[int]:
        """The ranks of all other workers with a part of the batch."""
        return [rank for rank in range(self._active) if rank != self.rank]

    def _everyone(
        self, number: int, vectors: Sequence[np.ndarray], sums: Sequence[np.ndarray | None] | None = None
    ) -> list[np.ndarray]:
        """Send the vectors to all workers, and return the totals, which are written to `sums` if given."""
        received = self._exchanged((self.attempt, number, 0), vectors)
        first, second, *others = received
        if sums is None:
            free = self._link.received_is_writable
            sums = [array if free and array.flags.writeable else None for array in received[int(self.rank == 0)]]
        totals = [np.add(one, other, out=out) for one, other, out in zip(first, second, sums, strict=True)]
        for arrays in others:
            for total, vector in zip(totals, arrays, strict=True):
                total += vector
        return totals

    def _exchanged(self, tag: Tag, arrays: Sequence[np.ndarray]) -> list[Sequence[np.ndarray]]:
        """Send arrays to all other workers that have a part of the batch; return all workers' arrays, in rank order."""
        for rank in self._others:
            self._link.send(rank, tag, arrays)
        return [arrays if rank == self.rank else self._link.receive(rank, tag) for rank in range(self._active)]

    def _in_slices(self, number: int, vectors: Sequence[np.ndarray], sums: Sequence[np.ndarray]) -> None:
        """Add up one slice of all workers' vectors and write the total to the sums of all workers."""
        count = len(vectors)
        received = self._exchanged((self.attempt, number, 0), [*vectors, *sums])
        for i, vector in enumerate(vectors):
            terms, targets = ([arrays[k] for arrays in received] for k in (i, count + i))
            start, stop = (vector.size * rank // self._active for rank in (self.rank, self.rank + 1))
            step = max(1, BLOCK_BYTES // vector.itemsize)
            for begin in range(start, stop, step):
                _add_block(slice(begin, min(begin + step, stop)), terms, targets)
        # Wait for all workers, since another worker may still be reading this worker's vectors and writing its sums.
        self._exchanged((self.attempt, number, 1), [])

    def _ring(self, number: int, vectors: list[np.ndarray]) -> list[np.ndarray]:
        """Run a ring all-reduce; the right neighbour reads each piece before the piece's total overwrites it."""
        count = self._active
        right, left = (self.rank + 1) % count, (self.rank - 1) % count
        pieces = [np.array_split(vector, count) for vector in vectors]
        for turn in range(2 * (count - 1)):
            adding = turn < count - 1
            tag = (self.attempt, number, turn)
            out = (self.rank - turn) % count if adding else (self.rank + 1 - (turn - count + 1)) % count
            self._link.send(right, tag, [piece[out] for piece in pieces])
            into = (out - 1) % count
            for piece, array in zip(pieces, self._link.receive(left, tag), strict=True):
                if adding:
                    piece[into] += array
                else:
                    piece[into][...] = array
        return vectors


def _add_block(block: slice, terms: Sequence[np.ndarray], targets: Sequence[np.ndarray]) -> None:
    """Add up the same block of all terms, and write the sum to that block of each target."""
    total = targets[0][block]
    np.add(terms[0][block], terms[1][block], out=total)
    for term in terms[2:]:
        total += term[block]
    for target in targets[1:]:
        target[block] = total


class Packing:
    """Packs arrays into vectors: small arrays of a dtype share a vector, and each large array has a vector of its own.

    Arrays of fewer than `limit` bytes count as small. Workers whose arrays have equal shapes and dtypes pack them in
    the same way.
    """

    def __init__(self, arrays: Sequence[np.ndarray], limit: float) -> None:
        self.shapes = [array.shape for array in arrays]
        self._sizes = [array.size for array in arrays]
        small: dict[np.dtype, list[int]] = {}
        self._alone = []
        for i, array in enumerate(arrays):
            if array.nbytes < limit:
                small.setdefault(array.dtype, []).append(i)
            else:
                self._alone.append(i)
        self._together = list(small.values())

    def packed(self, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
        """Return the vectors; the vectors of large contiguous arrays are views."""
        together = [np.concatenate([arrays[i].ravel() for i in chosen]) for chosen in self._together]
        return [*together, *(arrays[i].ravel() for i in self._alone)]

    def unpacked(self, vectors: Sequence[np.ndarray]) -> list[np.ndarray]:
        """Return arrays with the shapes of the packed arrays."""
        found: dict[int, np.ndarray] = {}
        for chosen, vector in zip(self._together, vectors, strict=False):
            start = 0
            for i in chosen:
                stop = start + self._sizes[i]
                found[i] = vector[start:stop].reshape(self.shapes[i])
                start = stop
        for i, vector in zip(self._alone, vectors[len(self._together) :], strict=True):
            found[i] = vector.reshape(self.shapes[i])
        return [found[i] for i in range(len(self.shapes))]
