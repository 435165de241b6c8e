"""Shared variables of a simulator whose arrays lie next to each other on the device (`PackedVariables`).

Their values may leave the device piece by piece, as soon as they are computed (`PiecewiseDownload`), and those of
another device may come as they get ready (`PackedTerm`). Queues of their own copy them.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np

from optdb.codegen.elementwise_programs import Elementwise
from optdb.codegen.kernels import CompiledKernel, compile_kernels
from optdb.codegen.operation import ArraySpec
from optdb.codegen.scalars.program import Program, Scalar
from optdb.host.api.graph import Variable
from optdb.lifters.transfers import record_transfer
from optdb.runtime.arrays import DeviceArray, copy, overwrite
from optdb.runtime.arrivals import Arrival
from optdb.runtime.commands import CommandList, listened, listening
from optdb.runtime.context import Context
from optdb.runtime.packing import PackedVector, maps_buffers, mark, side_queue

if TYPE_CHECKING:
    from optdb.opencl.simulator.simulator import SimulatorOCL
    from optdb.runtime.scripts import Calls

__all__ = ["PackedTerm", "PackedVariables", "Piece", "PiecewiseDownload", "finish", "is_placed"]

#: Fewer bytes do not leave a device by themselves: it takes longer to begin a copy.
PIECE_NBYTES = 1 << 19
#: Names of transfers that no op makes.
TO_HOST, TO_DEVICE = "packed variables to the host", "packed variables to the device"

Shape = tuple[int, ...]


def is_placed(simulator: SimulatorOCL, variable: Variable) -> bool:
    """Tell whether a simulator has a shared variable on its device."""
    return simulator._state.find(variable).array_type is not None


def finish(simulator: SimulatorOCL) -> None:
    """Wait until the device has done all that it was given: a call without results returns before."""
    state = simulator._state
    with state.turn():
        state.check_open()
        state.context.queue.finish()


class PackedVariables:
    """Shared variables on a device, in one buffer for each dtype: one transfer moves all of a dtype.

    The functions of the simulator read them where they lie, and write their next values there. No function may run
    between `download` or `open` and `release` or `upload`.

    Parameters
    ----------
    simulator : SimulatorOCL
        Its functions use the variables.
    variables : sequence of Variable
        Theano's shared variables, all of them on the device.
    """

    def __init__(self, simulator: SimulatorOCL, variables: Sequence[Variable]) -> None:
        self._state = simulator._state
        self._cells = [self._state.find(variable).cell for variable in variables]
        dtypes = [np.dtype(variable.type.dtype) for variable in variables]
        #: The numbers of the variables of each dtype.
        self._members: dict[np.dtype, list[int]] = {}
        for i, dtype in enumerate(dtypes):
            self._members.setdefault(dtype, []).append(i)
        self._vectors: dict[np.dtype, PackedVector] = {}
        #: By dtype, what adds up vectors on the device.
        self._adders: dict[np.dtype, _Adder] = {}

    @property
    def queue(self) -> Any:
        """The queue of the device."""
        return self._state.context.queue

    @property
    def are_copied(self) -> bool:
        """Whether the host's vectors are copies: the device has memory of its own."""
        return not maps_buffers(self._state.context)

    @property
    def shapes(self) -> list[Shape]:
        """The present shapes."""
        return [cell[0].shape for cell in self._cells]

    def lay_out(self, shapes: Sequence[Shape]) -> None:
        """Let the variables have arrays of some shapes, next to each other, whose values are to be written."""
        with self._state.turn():
            self._state.check_open()
            for dtype, members in self._members.items():
                vector = self._fitting(dtype, [shapes[i] for i in members])
                for i, array in zip(members, vector.arrays, strict=True):
                    self._cells[i][0] = array

    def download(self) -> list[np.ndarray]:
        """Wait for the device; return a vector for each dtype, which is not to be changed.

        Arrays that a function has put elsewhere, since they have another shape, are packed first.
        """
        with self._state.turn():
            self._state.check_open()
            self.pack()
            self._record(TO_HOST)
            return [vector.download() for vector in self._vectors.values()]

    def open(self) -> list[np.ndarray]:
        """Return a vector for each dtype, all of which is to be written before `upload`."""
        with self._state.turn():
            self._state.check_open()
            return [vector.open() for vector in self._vectors.values()]

    def upload(self) -> None:
        """Upload the vectors that `open` has returned."""
        with self._state.turn():
            self._state.check_open()
            self._record(TO_DEVICE)
            for vector in self._vectors.values():
                vector.upload()

    def release(self) -> None:
        """Give the variables back to functions."""
        with self._state.turn():
            self._state.check_open()
            for vector in self._vectors.values():
                vector.release()

    def copy_from(self, other: PackedVariables) -> None:
        """Copy the values of as many variables of the same shapes, on the device."""
        with self._state.turn():
            self._state.check_open()
            for dtype, vector in self._vectors.items():
                vector.copy_from(other._vectors[dtype])

    def add_up(self, own: PackedVariables, terms: Sequence[PackedTerm | None], calls: Calls) -> None:
        """Let the variables have sums of terms, added up on the device in their order; do not wait.

        Parameters
        ----------
        own : PackedVariables
            Of the same shapes. Their vectors on the device are the term that is None.
        terms : sequence of PackedTerm or None
            Two or more.
        calls : Immediate or Script
            Enqueues the commands.
        """
        with self._state.turn():
            self._state.check_open()
            for term in terms:
                if term is not None:
                    term.delay_queue(calls)
            vectors = [own._vectors if term is None else term.vectors for term in terms]
            for dtype, total in self._vectors.items():
                if total.nbytes:
                    if dtype not in self._adders:
                        self._adders[dtype] = _Adder(self._state.context, dtype)
                    self._adders[dtype].add([each[dtype] for each in vectors], total, calls)

    def pack(self, in_place: Mapping[np.dtype, int] = MappingProxyType({})) -> None:
        """Copy arrays into the vectors that functions have not written there: they have another shape, or order.

        Parameters
        ----------
        in_place : mapping
            By dtype, how many of the first arrays were copied already.
        """
        self.release()
        shapes = self.shapes
        for dtype, members in self._members.items():
            vector = self._fitting(dtype, [shapes[i] for i in members])
            for number, i in enumerate(members):
                cell = self._cells[i]
                if vector.holds(number, cell[0]):
                    continue
                value, cell[0] = cell[0], vector.arrays[number]
                if number >= in_place.get(dtype, 0):
                    _copy_to(cell[0], value)

    def _record(self, transfer: str) -> None:
        for vector in self._vectors.values():
            if not vector.is_mapped:
                record_transfer(transfer, vector.nbytes)

    def _fitting(self, dtype: np.dtype, shapes: list[Shape]) -> PackedVector:
        """Return the vector of a dtype if it has these shapes, or else a new one."""
        vector = self._vectors.get(dtype)
        if vector is None or vector.shapes != shapes:
            vector = self._vectors[dtype] = PackedVector(self._state.context, dtype, shapes)
        return vector


@dataclass
class Piece:
    """Neighbours of packed variables on the host, which are complete once `wait` returns."""

    #: By dtype, where they are in the vector, and their values.
    parts: dict[np.dtype, tuple[slice, np.ndarray]]
    #: Of the copies.
    events: list[Any]
    #: Whether it is the last one of the vectors.
    is_last: bool

    def wait(self) -> None:
        """Wait until the values are there. Any thread may wait."""
        Arrival(self.events).wait()


class PiecewiseDownload:
    """Downloads packed variables in pieces, of which each begins when its values are computed.

    Parameters
    ----------
    packed : PackedVariables
        Of a device with memory of its own.
    """

    def __init__(self, packed: PackedVariables) -> None:
        self._packed = packed
        self._queue = side_queue(packed._state.context)
        #: By dtype, the vector, and how many of its arrays have begun to leave.
        self._begun: dict[np.dtype, tuple[PackedVector, int]] = {}
        self._pieces: list[Piece] = []
        #: Variables that are computed, and have not begun to leave: they are few.
        self._waiting: dict[int, Any] = {}

    def restart(self) -> None:
        """Forget the pieces of an earlier step, which nobody needs any more."""
        for piece in self._pieces:
            piece.wait()
        self._pieces.clear()
        self._begun.clear()
        self._waiting.clear()

    def begin(self, arrays: Mapping[int, Any]) -> Piece | None:
        """Begin to download variables, whose commands are in the queue; return None if they have to wait for more.

        They wait if they are few, and if this is a function's first call with such arguments.

        Parameters
        ----------
        arrays : mapping
            By the numbers of variables, where their next values are. Those of a dtype follow the ones before.
        """
        self._waiting.update(arrays)
        if sum(array.nbytes for array in self._waiting.values()) < PIECE_NBYTES:
            return None
        until = self._until(self._waiting)
        # A listener may hold commands back.
        if until is None or listening() is not None:
            return None
        with self._packed._state.turn():
            self._packed._state.check_open()
            for dtype, stop in until.items():
                _, first = self._begun.get(dtype, (None, 0))
                vector, members = self._packed._vectors[dtype], self._packed._members[dtype]
                for number in range(first, stop):
                    # Two variables may be the same value, which is in one place.
                    if not vector.holds(number, self._waiting[members[number]]):
                        _copy_to(vector.arrays[number], self._waiting[members[number]])
            self._waiting.clear()
            return self._fetch(until, is_last=False)

    def end(self) -> Piece:
        """Begin to download the variables that have not left yet."""
        with self._packed._state.turn():
            self._packed._state.check_open()
            self._packed.pack({dtype: count for dtype, (_, count) in self._begun.items()})
            vectors = self._packed._vectors
            if any(vectors[dtype] is not vector for dtype, (vector, _) in self._begun.items()):
                raise RuntimeError("a summand has changed its shape after it was computed")
            return self._fetch({dtype: len(vector.arrays) for dtype, vector in vectors.items()}, is_last=True)

    def _until(self, arrays: Mapping[int, Any]) -> dict[np.dtype, int] | None:
        """Return by dtype how many arrays have left with these; None if there is no vector of their shapes."""
        until = {}
        for dtype, members in self._packed._members.items():
            vector = self._packed._vectors.get(dtype)
            _, stop = self._begun.get(dtype, (None, 0))
            for number, i in enumerate(members):
                if i not in arrays:
                    continue
                if vector is None or number != stop or vector.shapes[number] != arrays[i].shape:
                    return None
                until[dtype] = stop = number + 1
        return until

    def _fetch(self, until: Mapping[np.dtype, int], is_last: bool) -> Piece:
        after = [mark(self._packed._state.context.queue)]
        piece = Piece({}, [], is_last)
        for dtype, stop in until.items():
            vector = self._packed._vectors[dtype]
            _, first = self._begun.get(dtype, (None, 0))
            self._begun[dtype] = vector, stop
            part = vector.part(first, stop)
            if part.start == part.stop:
                continue
            elements, event = vector.fetch(self._queue, part, after)
            record_transfer(TO_HOST, elements.nbytes)
            piece.parts[dtype] = part, elements
            piece.events.append(event)
        self._queue.flush()
        self._pieces.append(piece)
        return piece


class PackedTerm:
    """Vectors on a device for the values of another one, which come in pieces.

    Parameters
    ----------
    packed : PackedVariables
        Variables on this device, of the same shapes.
    """

    def __init__(self, packed: PackedVariables) -> None:
        self._packed = packed
        self._context = packed._state.context
        self._queue = side_queue(self._context)
        #: By dtype.
        self.vectors: dict[np.dtype, PackedVector] = {}
        self._events: list[Any] = []
        self._fence: list[Any] = []

    def restart(self) -> None:
        """Let the pieces of a step come after all that the device was given before, which reads those before."""
        self.reading.wait()
        self._events.clear()
        self._fence = [mark(self._context.queue)]

    def receive(self, piece: Piece, calls: Calls) -> None:
        """Wait for a piece, and begin to upload it; it stays as it is while the device is `reading`."""
        calls.wait(piece.events)
        for dtype, (part, elements) in piece.parts.items():
            record_transfer(TO_DEVICE, elements.nbytes)
            self._events.append(self._vector(dtype).put(self._queue, part, elements, self._fence, calls))
        calls.flush(self._queue)

    def delay_queue(self, calls: Calls) -> None:
        """Let later commands of the device wait for the values."""
        calls.delay(self._context.queue, self._events)

    @property
    def reading(self) -> Arrival:
        """What waits until the device has read the pieces that it was given."""
        return Arrival(tuple(self._events))

    def _vector(self, dtype: np.dtype) -> PackedVector:
        like = self._packed._vectors[dtype]
        vector = self.vectors.get(dtype)
        if vector is None or vector.shapes != like.shapes:
            # Its zeros are written by the device's own queue.
            vector = self.vectors[dtype] = PackedVector(self._context, dtype, like.shapes, on_host=False)
            self._fence = [mark(self._context.queue)]
        return vector


def _copy_to(target: DeviceArray, value: DeviceArray) -> None:
    if not overwrite(target, value):
        overwrite(target, copy(value))  # which lies in order


class _Kept:
    """Keeps a thread's commands, and enqueues none."""

    tracing = takes_bound = False

    def __init__(self) -> None:
        self.commands: list[Any] = []

    def on(self, command: Any) -> None:
        self.commands.append(command)


class _Adder:
    """Adds vectors of one dtype on the device; the kernel is compiled when it is first used."""

    def __init__(self, context: Context, dtype: np.dtype) -> None:
        self._context = context
        vector = ArraySpec(dtype.name, (False,))
        self._operation = Elementwise(
            context, Program.of(Scalar("Add", dtype.name), [dtype.name, dtype.name]), [vector, vector]
        )
        #: The vectors of the last sum, and what adds them up.
        self._vectors: list[PackedVector] = []
        self._commands = CommandList()

    @functools.cached_property
    def _kernels(self) -> Mapping[str, CompiledKernel]:
        return compile_kernels(self._operation.kernels(), self._context, str(self._operation))

    def add(self, terms: Sequence[PackedVector], total: PackedVector, calls: Calls) -> None:
        """Write the sum of two or more vectors, added up in their order, into another one."""
        vectors = [*terms, total]
        if len(vectors) != len(self._vectors) or any(a is not b for a, b in zip(vectors, self._vectors, strict=True)):
            self._commands, self._vectors = self._prepared(terms, total), vectors
        calls.enqueue(self._commands)

    def _prepared(self, terms: Sequence[PackedVector], total: PackedVector) -> CommandList:
        """Return the launches, whose kernel objects are their own."""
        kept = _Kept()
        with listened(kept):
            first = terms[0].elements
            for term in terms[1:]:
                self._operation.run([first, term.elements], [[total.elements]], self._kernels)
                first = total.elements
        return CommandList(command.bind(lambda buffer: (buffer, 0)) for command in kept.commands)
