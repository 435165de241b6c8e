"""Packed variables that are copied between devices in pieces.

`PiecewiseDownload` downloads a piece as soon as its values are computed, and `PackedTerm` uploads another device's
pieces. The two classes use separate queues.
"""

from __future__ import annotations

import itertools
import math
import operator
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from optdb.lifters.transfers import record_transfer
from optdb.opencl.simulator.packing import TO_DEVICE, TO_HOST, PackedVariables, Shape, Share, part_of
from optdb.runtime.arrays import DeviceArray, lies_in_order
from optdb.runtime.commands import Locate, Transfer
from optdb.runtime.dispatch import enqueue
from optdb.runtime.driver_batches import PreparedCall, driver_calls
from optdb.runtime.fetching import EnqueueMark, EventHandle, StartQueue
from optdb.runtime.packing import PackedVector, mark, side_queue
from optdb.runtime.scripts import Arrival, Calls

#: The minimum size in bytes of a piece that is downloaded early. The larger minimum, `LARGE_PIECE_NBYTES`, applies to
#: pieces of fewer than `PIECE_ARRAYS` arrays. Each piece delays the device, so small variables wait until more
#: variables are computed.
PIECE_NBYTES, LARGE_PIECE_NBYTES, PIECE_ARRAYS = 1 << 19, 1 << 25, 5
#: The maximum size in bytes of each copy that starts after all variables are computed. Several copies are faster than
#: one, because a piece is uploaded to another device while the next piece is downloaded.
LAST_PIECE_NBYTES = 1 << 23


@dataclass
class Piece:
    """Some of the packed variables on the host; the values are complete when `wait` returns."""

    #: For each part, its dtype, its range in the dtype's vector, and its values.
    parts: list[tuple[np.dtype, slice, np.ndarray]]
    events: list[Any]
    #: Whether the piece is complete only when all variables are computed.
    is_last: bool

    @property
    def nbytes(self) -> int:
        return sum(values.nbytes for _, _, values in self.parts)

    def wait(self) -> None:
        """Wait for the values. Any thread may wait."""
        Arrival(self.events).wait()


@dataclass(eq=False, slots=True)
class _EnqueuePart(Transfer):
    """Copies adjacent packed variables to the host if the plan computes them in the packed vector."""

    kind: ClassVar[str] = "fetch"

    part: _PackedPart
    sources: tuple[Any, ...]
    offsets: tuple[int, ...]

    @property
    def nbytes(self) -> int:
        return self.part.nbytes

    def operands(self) -> Iterator[tuple[int, Any]]:
        return iter(enumerate(self.sources))

    def with_operands(self, substitute: Callable[[Any], Any]) -> _EnqueuePart:
        return replace(self, sources=tuple(map(substitute, self.sources)))

    def bind(self, locate: Locate) -> _EnqueuePart:
        sources, shifts = zip(*map(locate, self.sources), strict=True)
        bound = replace(self, sources=sources, offsets=tuple(map(operator.add, self.offsets, shifts)))
        bound.call = self.part.call(self.queue, bound.sources, bound.offsets)
        return bound

    def rebind(self, operand: int, buffer: Any) -> None:
        """Drop the prepared call, which was for the replaced buffer."""
        self.call = None

    def enqueue(self) -> None:
        """Start the copy if there is a prepared driver call for it; otherwise, `end` copies the part."""
        if self.call is not None:
            self.call()


class _PackedPart:
    """Adjacent packed variables of one dtype, downloaded after event `mark` while other variables are computed."""

    def __init__(
        self, packed: PackedVariables, dtype: np.dtype, numbers: range, shapes: Sequence[Shape], mark: EventHandle
    ) -> None:
        self._packed, self.dtype, self.numbers, self._shapes = packed, dtype, numbers, shapes
        self._mark, self._event = mark, EventHandle()
        self.nbytes = sum(math.prod(shape) for shape in shapes) * dtype.itemsize
        #: The vector that contains the variables; None until a plan computes them there.
        self._vector: PackedVector | None = None

    def call(self, queue: Any, buffers: Sequence[Any], offsets: Sequence[int]) -> PreparedCall | None:
        """Return the driver call that starts the copy; None if the buffers do not belong to the packed variables."""
        calls, vector = driver_calls(), self._packed._vectors.get(self.dtype)
        if calls is None or vector is None:
            return None
        places = zip(self.numbers, self._shapes, buffers, offsets, strict=True)
        if not all(itertools.starmap(vector.is_place, places)):
            return None
        self._vector = vector
        buffer, offset, elements = vector.on_both(vector.part(self.numbers.start, self.numbers.stop))
        return calls.fetch(queue, buffer, offset, elements, self._event.address, self._mark.address)

    def take(self) -> Piece | None:
        """Return the piece if its copy has started since the last `take`, else None."""
        self._mark.take()
        event = self._event.take()
        if event is None or self._vector is None:
            return None
        part = self._vector.part(self.numbers.start, self.numbers.stop)
        return Piece([(self.dtype, part, self._vector.on_both(part)[2])], [event], is_last=False)

    @property
    def is_current(self) -> bool:
        """Whether the variables are still packed in the vector in which the plan computed them."""
        return self._vector is self._packed._vectors.get(self.dtype)


class PiecewiseDownload:
    """Downloads packed variables in pieces, each as soon as its values are computed."""

    def __init__(self, packed: PackedVariables) -> None:
        self._packed = packed
        self._queue = side_queue(packed._state.context)
        self._parts: weakref.WeakSet[_PackedPart] = weakref.WeakSet()
        self._pieces: list[Piece] = []
        #: Computed variables that are still too few to form a piece.
        self._computed: dict[int, DeviceArray] = {}

    def restart(self) -> None:
        """Wait for the pieces of an earlier step, and discard them."""
        self._pieces += filter(None, (part.take() for part in self._parts))
        for piece in self._pieces:
            piece.wait()
        self._pieces.clear()
        self._computed.clear()

    def enqueue(self, computed: Mapping[int, DeviceArray]) -> None:
        """Enqueue commands that download `computed`, which maps variables to next values; a plan replays the commands.

        The commands do nothing if the plan computes the variables elsewhere. Small variables are downloaded with the
        variables that are computed next, or by `end`.
        """
        self._computed.update(computed)
        nbytes = sum(array.nbytes for array in self._computed.values())
        if nbytes < (LARGE_PIECE_NBYTES if len(self._computed) < PIECE_ARRAYS else PIECE_NBYTES):
            return
        arrays, self._computed = self._computed, {}
        queue, mark = self._packed._state.context.queue, EventHandle()
        enqueue(EnqueueMark(queue, mark))
        enqueue(StartQueue(queue))
        for dtype, members in self._packed._members.items():
            some = [number for number, i in enumerate(members) if i in arrays and arrays[i].size]
            if not some or len(some) != some[-1] - some[0] + 1:
                continue
            values = [arrays[members[number]] for number in some]
            if not all(lies_in_order(value.shape, value.strides, dtype.itemsize) for value in values):
                continue
            part = _PackedPart(
                self._packed, dtype, range(some[0], some[-1] + 1), [value.shape for value in values], mark
            )
            self._parts.add(part)
            sources, offsets = zip(*((value.base_data, value.offset) for value in values), strict=True)
            enqueue(_EnqueuePart(self._queue, part, sources, offsets))
        enqueue(StartQueue(self._queue))

    def end(self) -> list[Piece]:
        """Start downloading the remaining variables; return all pieces."""
        with self._packed._state.turn():
            self._packed._state.check_open()
            begun = [(part, piece) for part in self._parts if (piece := part.take()) is not None]
            self._pieces = [piece for _, piece in sorted(begun, key=lambda pair: pair[0].numbers.start)]
            self._packed.pack()
            if not all(part.is_current for part, _ in begun):
                raise RuntimeError("a summand changed its shape after it was computed")
            self._pieces += self._rest([part for part, _ in begun])
            return self._pieces

    def _rest(self, begun: Sequence[_PackedPart]) -> list[Piece]:
        """Start downloading the variables that are not in the parts in `begun`; return at least one piece."""
        after = [mark(self._packed._state.context.queue)]
        rest = [Piece([], [], is_last=True)]
        for dtype, vector in self._packed._vectors.items():
            left = {number for part in begun if part.dtype == dtype for number in part.numbers}
            for first, stop in _runs(number for number in range(len(vector.arrays)) if number not in left):
                for part in _cut(vector.part(first, stop), LAST_PIECE_NBYTES // dtype.itemsize):
                    if rest[-1].nbytes >= LAST_PIECE_NBYTES:
                        rest.append(Piece([], [], is_last=True))
                    elements, event = vector.fetch(self._queue, part, after)
                    rest[-1].parts.append((dtype, part, elements))
                    rest[-1].events.append(event)
        self._queue.flush()
        for each in (*self._pieces, *rest):
            for _, _, elements in each.parts:
                record_transfer(TO_HOST, elements.nbytes)
        return rest


def _cut(whole: slice, size: int) -> Iterator[slice]:
    """Yield consecutive parts of a slice, with at most `size` elements each."""
    for start in range(whole.start, whole.stop, size):
        yield slice(start, min(start + size, whole.stop))


def _runs(numbers: Iterable[int]) -> Iterator[tuple[int, int]]:
    for _, run in itertools.groupby(enumerate(numbers), lambda pair: pair[1] - pair[0]):
        members = [number for _, number in run]
        yield members[0], members[-1] + 1


class PackedTerm:
    """Vectors on a device that receive another device's `packed` variables piece by piece."""

    def __init__(self, packed: PackedVariables) -> None:
        self._packed = packed
        self._context = packed._state.context
        self._queue = side_queue(self._context)
        self.vectors: dict[np.dtype, PackedVector] = {}
        self._events: list[Any] = []
        self._fence: list[Any] = []

    def restart(self) -> None:
        """Start a step; its pieces are uploaded after all earlier commands, which may still be reading older pieces."""
        self.reading.wait()
        self._events.clear()
        self._fence = [mark(self._context.queue)]

    def receive(self, piece: Piece, calls: Calls, share: Share | None = None) -> None:
        """Wait for a piece, and start uploading it; if a share is given, upload only the elements in the share.

        The piece must not change until the device has finished `reading`.
        """
        calls.wait(piece.events)
        for dtype, part, elements in piece.parts:
            wanted = part_of(self._packed._vectors[dtype], share)
            start, stop = max(part.start, wanted.start), min(part.stop, wanted.stop)
            if start >= stop:
                continue
            elements = elements[start - part.start : stop - part.start]
            record_transfer(TO_DEVICE, elements.nbytes)
            part = slice(start - wanted.start, stop - wanted.start)
            self._events.append(self._vector(dtype, share).put(self._queue, part, elements, self._fence, calls))
        calls.flush(self._queue)

    def delay_queue(self, calls: Calls) -> None:
        """Make later commands on the device wait until the received pieces are uploaded."""
        calls.delay(self._context.queue, self._events)

    @property
    def reading(self) -> Arrival:
        """An `Arrival` that waits until the device has read the received pieces."""
        return Arrival(tuple(self._events))

    def _vector(self, dtype: np.dtype, share: Share | None) -> PackedVector:
        like = self._packed._vectors[dtype]
        part = part_of(like, share)
        shapes = like.shapes if share is None else [(part.stop - part.start,)]
        vector = self.vectors.get(dtype)
        if vector is None or vector.shapes != shapes:
            # Uploads must wait until the main queue of the device has filled the new vector with zeros.
            vector = self.vectors[dtype] = PackedVector(self._context, dtype, shapes, on_host=False)
            self._fence = [mark(self._context.queue)]
        return vector
