"""A simulator's shared variables, packed into one device buffer per dtype.

`PackedVariables` copies all variables of a dtype in one transfer, and adds up the variables of several devices.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from optdb.codegen.elementwise_programs import Elementwise
from optdb.codegen.kernels import CompiledKernel, compile_kernels
from optdb.codegen.operation import ArraySpec
from optdb.codegen.scalars.program import Scalar, ScalarProgram
from optdb.host.api.graph import Variable
from optdb.lifters.transfers import record_transfer
from optdb.runtime.arrays import copy, overwrite
from optdb.runtime.commands import CommandList
from optdb.runtime.context import Context
from optdb.runtime.dispatch import listened
from optdb.runtime.packing import PackedVector, maps_buffers
from optdb.runtime.scripts import Calls, Pending

if TYPE_CHECKING:
    from optdb.opencl.simulator.pieces import PackedTerm
    from optdb.opencl.simulator.simulator import SimulatorOCL

_first_of = operator.itemgetter(0)
#: The rank of a device and the number of devices, each of which adds up its slice of every vector.
Share = tuple[int, int]
#: The names under which transfers without an op are recorded.
TO_HOST, TO_DEVICE = "packed variables to the host", "packed variables to the device"
Shape = tuple[int, ...]


def is_placed(simulator: SimulatorOCL, variable: Variable) -> bool:
    """Return whether a simulator keeps a shared variable on its device."""
    return simulator._state.find(variable).array_type is not None


def finish(simulator: SimulatorOCL) -> None:
    """Wait until the device has finished all enqueued work."""
    state = simulator._state
    with state.turn():
        state.check_open()
        state.context.queue.finish()


class PackedVariables:
    """Shared variables in one device buffer per dtype, so that a single transfer copies all variables of a dtype.

    The simulator's functions read the variables from these buffers and write next values there. No function may run
    between `download` and `release`, or between `open` and `upload`.
    """

    def __init__(self, simulator: SimulatorOCL, variables: Sequence[Variable]) -> None:
        self._state = simulator._state
        self._cells = [self._state.find(variable).cell for variable in variables]
        dtypes = [np.dtype(variable.type.dtype) for variable in variables]
        self._members: dict[np.dtype, list[int]] = {}
        for i, dtype in enumerate(dtypes):
            self._members.setdefault(dtype, []).append(i)
        self._vectors: dict[np.dtype, PackedVector] = {}
        #: The arrays in the variables' storage cells after the last call to `pack`.
        self._packed: list[Any] = []
        #: Maps dtypes to objects that add vectors on the device.
        self._adders: dict[np.dtype, _Adder] = {}

    @property
    def queue(self) -> Any:
        return self._state.context.queue

    @property
    def are_copied(self) -> bool:
        """Whether the device has its own memory, so that the host's vectors are copies."""
        return not maps_buffers(self._state.context)

    @property
    def shapes(self) -> list[Shape]:
        return [cell[0].shape for cell in self._cells]

    def lay_out(self, shapes: Sequence[Shape]) -> None:
        """Set the variables to contiguous, uninitialized arrays with the given shapes."""
        with self._state.turn():
            self._state.check_open()
            for dtype, members in self._members.items():
                vector = self._fitting(dtype, [shapes[i] for i in members])
                for i, array in zip(members, vector.arrays, strict=True):
                    self._cells[i][0] = array

    def download(self) -> list[np.ndarray]:
        """Pack the variables, wait for the device, and return a read-only vector for each dtype."""
        with self._state.turn():
            self._state.check_open()
            self.pack()
            self._record(TO_HOST)
            return [vector.download() for vector in self._vectors.values()]

    def open(self) -> list[np.ndarray]:
        """Return a vector for each dtype; the caller must write all elements before `upload`."""
        with self._state.turn():
            self._state.check_open()
            return [vector.open() for vector in self._vectors.values()]

    def upload(self) -> None:
        """Upload the vectors that `open` returned."""
        with self._state.turn():
            self._state.check_open()
            self._record(TO_DEVICE)
            for vector in self._vectors.values():
                vector.upload()

    def release(self) -> None:
        """Let the simulator's functions use the variables again."""
        with self._state.turn():
            self._state.check_open()
            for vector in self._vectors.values():
                vector.release()

    def copy_from(self, other: PackedVariables) -> None:
        """Copy the values of `other` on the device; its variables must have the same shapes."""
        with self._state.turn():
            self._state.check_open()
            for dtype, vector in self._vectors.items():
                vector.copy_from(other._vectors[dtype])

    def add_up(
        self, own: PackedVariables, terms: Sequence[PackedTerm | None], calls: Calls, share: Share | None = None
    ) -> None:
        """Set the variables to the sums of two or more terms, which the device adds in order; the host does not wait.

        Among the terms, None means `own`, whose variables have the same shapes. `calls` enqueues commands. If a `share`
        is given, only its elements are set.
        """
        with self._state.turn():
            self._state.check_open()
            for term in terms:
                if term is not None:
                    term.delay_queue(calls)
            for dtype, total in self._vectors.items():
                part = part_of(total, share)
                if part.start == part.stop:
                    continue
                if dtype not in self._adders:
                    self._adders[dtype] = _Adder(self._state.context, dtype)
                vectors = [None if term is None else term.vectors[dtype] for term in terms]
                added = [
                    (own._vectors[dtype], part) if vector is None else (vector, vector.whole) for vector in vectors
                ]
                self._adders[dtype].add(added, (total, part), calls)

    @property
    def nbytes(self) -> int:
        """The size in bytes of all vectors."""
        return sum(vector.nbytes for vector in self._vectors.values())

    @property
    def on_host(self) -> list[np.ndarray]:
        """The host's vectors, which receive downloaded elements."""
        return [vector.on_both(vector.whole)[2] for vector in self._vectors.values() if vector.nbytes]

    def download_share(self, share: Share, calls: Calls) -> list[Pending]:
        """Start copying the elements of a share to the host's vectors; return the copies' events."""
        events: list[Pending] = []
        for vector in self._vectors.values():
            part = part_of(vector, share)
            if part.start != part.stop:
                record_transfer(TO_HOST, (part.stop - part.start) * vector.dtype.itemsize)
                events.append(vector.read(part, calls))
        calls.flush(self.queue)
        return events

    def upload_shares(self, shares: Mapping[Share, Sequence[np.ndarray]], calls: Calls) -> list[Pending]:
        """Start copying other devices' shares from their `on_host` vectors; return the copies' events."""
        events: list[Pending] = []
        vectors = [vector for vector in self._vectors.values() if vector.nbytes]
        for share, arrays in shares.items():
            for vector, array in zip(vectors, arrays, strict=True):
                part = part_of(vector, share)
                if part.start != part.stop:
                    record_transfer(TO_DEVICE, array[part].nbytes)
                    events.append(vector.write(part, array[part], calls))
        return events

    def pack(self) -> None:
        """Copy arrays into the vectors if functions stored them elsewhere because their shape or order changed."""
        self.release()
        # Nothing has to be copied if the cells contain the same array objects as before, for example after a plan was
        # replayed.
        if len(self._packed) == len(self._cells) and all(map(operator.is_, map(_first_of, self._cells), self._packed)):
            return
        shapes = self.shapes
        for dtype, members in self._members.items():
            vector = self._fitting(dtype, [shapes[i] for i in members])
            for number, i in enumerate(members):
                cell = self._cells[i]
                if vector.holds(number, cell[0]):
                    continue
                value, cell[0] = cell[0], vector.arrays[number]
                if not overwrite(cell[0], value):
                    overwrite(cell[0], copy(value))  # the copy is contiguous
        self._packed = [cell[0] for cell in self._cells]

    def _record(self, transfer: str) -> None:
        for vector in self._vectors.values():
            if not vector.is_mapped:
                record_transfer(transfer, vector.nbytes)

    def _fitting(self, dtype: np.dtype, shapes: list[Shape]) -> PackedVector:
        """Return the vector of a dtype for the given shapes, after replacing the old vector if its shapes differ."""
        vector = self._vectors.get(dtype)
        if vector is None or vector.shapes != shapes:
            vector = self._vectors[dtype] = PackedVector(self._state.context, dtype, shapes)
        return vector


def part_of(vector: PackedVector, share: Share | None) -> slice:
    """Return the elements of a share, or all elements."""
    return vector.whole if share is None else vector.share_of(*share)


class _Kept:
    """Collects a thread's commands instead of enqueueing them."""

    tracing = takes_bound = False

    def __init__(self) -> None:
        self.commands: list[Any] = []

    def on(self, command: Any) -> None:
        self.commands.append(command)


class _Adder:
    """Adds vectors of one dtype on the device."""

    def __init__(self, context: Context, dtype: np.dtype) -> None:
        self._context = context
        vector = ArraySpec(dtype.name, (False,))
        self._operation = Elementwise(
            context, ScalarProgram.of(Scalar("Add", dtype.name), [dtype.name, dtype.name]), [vector, vector]
        )
        #: The terms and the total for which `_commands` was prepared.
        self._operands: list[tuple[PackedVector, slice]] = []
        self._commands = CommandList()

    @functools.cached_property
    def _kernels(self) -> Mapping[str, CompiledKernel]:
        return compile_kernels(self._operation.kernels(), self._context, str(self._operation))

    def add(self, terms: Sequence[tuple[PackedVector, slice]], total: tuple[PackedVector, slice], calls: Calls) -> None:
        """Add up slices of two or more vectors, in order, and write the sum to the slice `total`."""
        operands = [*terms, total]
        if operands != self._operands:
            self._commands, self._operands = self._prepared(operands), operands
        calls.enqueue(self._commands)

    def _prepared(self, operands: Sequence[tuple[PackedVector, slice]]) -> CommandList:
        """Return a list of kernel launches, each of which has its own kernel object."""
        first, *others, total = [vector.elements(part) for vector, part in operands]
        kept = _Kept()
        with listened(kept):
            for term in others:
                self._operation.run([first, term], [[total]], self._kernels)
                first = total
        return CommandList(command.bind(lambda buffer: (buffer, 0)) for command in kept.commands)
