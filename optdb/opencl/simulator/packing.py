"""Shared variables of a simulator whose arrays lie next to each other on the device (`PackedVariables`)."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from optdb.codegen.elementwise_programs import Elementwise
from optdb.codegen.kernels import CompiledKernel, compile_kernels
from optdb.codegen.operation import ArraySpec
from optdb.codegen.scalars.program import Program, Scalar
from optdb.host.api.graph import Variable
from optdb.lifters.transfers import record_transfer
from optdb.runtime.arrays import DeviceArray, copy, overwrite
from optdb.runtime.context import Context
from optdb.runtime.packing import PackedVector, maps_buffers

if TYPE_CHECKING:
    from optdb.opencl.simulator.simulator import SimulatorOCL

__all__ = ["PackedVariables", "finish", "is_placed"]

#: Names of transfers that no op makes.
TO_HOST, TO_DEVICE = "packed variables to the host", "packed variables to the device"

Shape = tuple[int, ...]


def is_placed(simulator: SimulatorOCL, variable: Variable) -> bool:
    """Tell whether a simulator has a shared variable on its device."""
    return simulator._state.find(variable).array_type is not None


def finish(simulator: SimulatorOCL) -> None:
    """Wait until the device has done all that it was given: a call without results returns before."""
    with simulator._state as state:
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
        #: By dtype, what adds up vectors on the device, and memory for one of them.
        self._adders: dict[np.dtype, _Adder] = {}
        self._stagings: dict[np.dtype, PackedVector] = {}

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
        with self._state:
            for dtype, members in self._members.items():
                vector = self._fitting(dtype, [shapes[i] for i in members])
                for i, array in zip(members, vector.arrays, strict=True):
                    self._cells[i][0] = array

    def download(self) -> list[np.ndarray]:
        """Wait for the device; return a vector for each dtype, which is not to be changed.

        Arrays that a function has put elsewhere, since they have another shape, are packed first.
        """
        with self._state:
            self.pack()
            self._record(TO_HOST)
            return [vector.download() for vector in self._vectors.values()]

    def open(self) -> list[np.ndarray]:
        """Return a vector for each dtype, all of which is to be written before `upload`."""
        with self._state:
            return [vector.open() for vector in self._vectors.values()]

    def upload(self) -> None:
        """Upload the vectors that `open` has returned."""
        with self._state:
            self._record(TO_DEVICE)
            for vector in self._vectors.values():
                vector.upload()

    def release(self) -> None:
        """Give the variables back to functions."""
        with self._state:
            for vector in self._vectors.values():
                vector.release()

    def copy_from(self, other: PackedVariables) -> None:
        """Copy the values of as many variables of the same shapes, on the device."""
        with self._state:
            for dtype, vector in self._vectors.items():
                vector.copy_from(other._vectors[dtype])

    def add_up(self, own: PackedVariables, vectors: Sequence[Sequence[np.ndarray]], rank: int) -> None:
        """Let the variables have sums of vectors, added up on the device in their order; return when these are read.

        Parameters
        ----------
        own : PackedVariables
            Of the same shapes, whose vectors on the device are those of number `rank`.
        vectors : sequence of sequence of ndarray
            For each term, what `download` returned.
        rank : int
            Which term is on the device.
        """
        with self._state:
            for number, (dtype, vector) in enumerate(self._vectors.items()):
                own_vector = own._vectors[dtype]
                if vector.nbytes:
                    terms = [None if i == rank else each[number] for i, each in enumerate(vectors)]
                    self._add_vectors(vector, own_vector, terms)
            self._state.context.queue.finish()

    def _add_vectors(self, total: PackedVector, own: PackedVector, terms: Sequence[np.ndarray | None]) -> None:
        """Add up terms of which those that are None are `own`."""
        first, *others = terms
        if first is not None:
            record_transfer(TO_DEVICE, first.nbytes)
            total.receive(first)
        summed = own.elements if first is None else total.elements
        staging = self._staging(total)
        adder = self._adders.setdefault(total.dtype, _Adder(self._state.context, total.dtype))
        for term in others:
            if term is not None:
                record_transfer(TO_DEVICE, term.nbytes)
                staging.receive(term)
            summand = own.elements if term is None else staging.elements
            adder.add(summed, summand, total.elements)
            summed = total.elements

    def _staging(self, vector: PackedVector) -> PackedVector:
        """Return memory on the device for one term."""
        staging = self._stagings.get(vector.dtype)
        if staging is None or staging.shapes != vector.shapes:
            staging = self._stagings[vector.dtype] = PackedVector(self._state.context, vector.dtype, vector.shapes)
        return staging

    def pack(self) -> None:
        """Copy arrays into the vectors that functions have not written there: they have another shape, or order."""
        self.release()
        shapes = self.shapes
        for dtype, members in self._members.items():
            vector = self._fitting(dtype, [shapes[i] for i in members])
            for number, i in enumerate(members):
                cell = self._cells[i]
                if vector.holds(number, cell[0]):
                    continue
                value, cell[0] = cell[0], vector.arrays[number]
                if not overwrite(cell[0], value):
                    overwrite(cell[0], copy(value))  # which lies in order

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


class _Adder:
    """Adds vectors of one dtype on the device; the kernel is compiled when it is first used."""

    def __init__(self, context: Context, dtype: np.dtype) -> None:
        self._context = context
        vector = ArraySpec(dtype.name, (False,))
        self._operation = Elementwise(
            context, Program.of(Scalar("Add", dtype.name), [dtype.name, dtype.name]), [vector, vector]
        )

    @functools.cached_property
    def _kernels(self) -> Mapping[str, CompiledKernel]:
        return compile_kernels(self._operation.kernels(), self._context, str(self._operation))

    def add(self, first: DeviceArray, second: DeviceArray, total: DeviceArray) -> None:
        """Write the sum of two vectors into one that may be the first of them."""
        self._operation.run([first, second], [[total]], self._kernels)
