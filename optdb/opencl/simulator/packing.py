"""A simulator's shared variables, packed into one device buffer per dtype (`PackedVariables`)."""

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

if TYPE_CHECKING:
    from optdb.opencl.simulator.piecewise_copies import PackedTerm
    from optdb.opencl.simulator.simulator import SimulatorOCL
    from optdb.runtime.scripts import Calls

_first_of = operator.itemgetter(0)
#: Names of transfers that belong to no op.
TO_HOST, TO_DEVICE = "packed variables to the host", "packed variables to the device"
Shape = tuple[int, ...]


def is_placed(simulator: SimulatorOCL, variable: Variable) -> bool:
    """Return whether a simulator keeps a shared variable on its device."""
    return simulator._state.find(variable).array_type is not None


def finish(simulator: SimulatorOCL) -> None:
    """Wait until the device has finished all enqueued work; a call that returns no results does not wait for it."""
    state = simulator._state
    with state.turn():
        state.check_open()
        state.context.queue.finish()


class PackedVariables:
    """Shared variables on a device in one buffer per dtype, so that one transfer copies all variables of a dtype.

    The simulator's functions read the variables from these buffers and write their next values there. No function may
    run between `download` and `release`, or between `open` and `upload`.
    """

    def __init__(self, simulator: SimulatorOCL, variables: Sequence[Variable]) -> None:
        self._state = simulator._state
        self._cells = [self._state.find(variable).cell for variable in variables]
        dtypes = [np.dtype(variable.type.dtype) for variable in variables]
        self._members: dict[np.dtype, list[int]] = {}
        for i, dtype in enumerate(dtypes):
            self._members.setdefault(dtype, []).append(i)
        self._vectors: dict[np.dtype, PackedVector] = {}
        #: The arrays in the cells after the last call of `pack`.
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
        """Give the variables contiguous, uninitialized arrays with the given shapes."""
        with self._state.turn():
            self._state.check_open()
            for dtype, members in self._members.items():
                vector = self._fitting(dtype, [shapes[i] for i in members])
                for i, array in zip(members, vector.arrays, strict=True):
                    self._cells[i][0] = array

    def download(self) -> list[np.ndarray]:
        """Wait for the device and return a vector for each dtype, packed first; the vectors must not be modified."""
        with self._state.turn():
            self._state.check_open()
            self.pack()
            self._record(TO_HOST)
            return [vector.download() for vector in self._vectors.values()]

    def open(self) -> list[np.ndarray]:
        """Return a vector for each dtype; the caller must write all elements before calling `upload`."""
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
        """Let functions use the variables again."""
        with self._state.turn():
            self._state.check_open()
            for vector in self._vectors.values():
                vector.release()

    def copy_from(self, other: PackedVariables) -> None:
        """Copy, on the device, the values of `other`, which must have variables of the same shapes."""
        with self._state.turn():
            self._state.check_open()
            for dtype, vector in self._vectors.items():
                vector.copy_from(other._vectors[dtype])

    def add_up(self, own: PackedVariables, terms: Sequence[PackedTerm | None], calls: Calls) -> None:
        """Set the variables to the sums of two or more terms. The device adds them in order; the host does not wait.

        `own` has variables with the same shapes, whose vectors are used for a term that is None. `calls` enqueues
        commands.
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

    def pack(self) -> None:
        """Copy arrays into the vectors if functions stored them elsewhere because of another shape or order."""
        self.release()
        # A replayed plan stores the same array objects again.
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
        """Return a dtype's vector, replacing it first if its shapes differ."""
        vector = self._vectors.get(dtype)
        if vector is None or vector.shapes != shapes:
            vector = self._vectors[dtype] = PackedVector(self._state.context, dtype, shapes)
        return vector


class _Kept:
    """Collects a thread's commands instead of enqueueing them."""

    tracing = takes_bound = False

    def __init__(self) -> None:
        self.commands: list[Any] = []

    def on(self, command: Any) -> None:
        self.commands.append(command)


class _Adder:
    """Adds vectors of one dtype on the device; compiles the kernel on first use."""

    def __init__(self, context: Context, dtype: np.dtype) -> None:
        self._context = context
        vector = ArraySpec(dtype.name, (False,))
        self._operation = Elementwise(
            context, ScalarProgram.of(Scalar("Add", dtype.name), [dtype.name, dtype.name]), [vector, vector]
        )
        #: The terms and the total of the last sum, which `_commands` computes.
        self._vectors: list[PackedVector] = []
        self._commands = CommandList()

    @functools.cached_property
    def _kernels(self) -> Mapping[str, CompiledKernel]:
        return compile_kernels(self._operation.kernels(), self._context, str(self._operation))

    def add(self, terms: Sequence[PackedVector], total: PackedVector, calls: Calls) -> None:
        """Write the sum of two or more vectors, added in order, to the vector `total`."""
        vectors = [*terms, total]
        if len(vectors) != len(self._vectors) or any(a is not b for a, b in zip(vectors, self._vectors, strict=True)):
            self._commands, self._vectors = self._prepared(terms, total), vectors
        calls.enqueue(self._commands)

    def _prepared(self, terms: Sequence[PackedVector], total: PackedVector) -> CommandList:
        """Return the kernel launches, each with its own kernel object."""
        kept = _Kept()
        with listened(kept):
            first = terms[0].elements
            for term in terms[1:]:
                self._operation.run([first, term.elements], [[total.elements]], self._kernels)
                first = total.elements
        return CommandList(command.bind(lambda buffer: (buffer, 0)) for command in kept.commands)
