"""What a device computes, for any host: operations.

An :class:`Operation` is made for arrays of certain dtypes, ranks and broadcast patterns. It gives its kernels, which a
host compiles once, and runs them on arrays. What the inputs mean to a host, its type inference and its gradients stay
with the host.

`Operation.compute` compiles and runs an operation in one step::

    sort = SortAlongAxis(context, ArraySpec.of(x))
    (result,) = sort.compute(x, -1)
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from numpy.typing import DTypeLike

from optdb.codegen.kernels import CompiledKernel, Kernel, compile_kernels
from optdb.runtime.arrays import Array, empty, fill_zeros
from optdb.runtime.context import Context
from optdb.runtime.sizes import as_int

#: The storage cells of outputs: for each, a list of one element. A cell may hold the value of an earlier call.
Outputs = Sequence[list[Any]]
#: The compiled kernels of an operation, by name.
Kernels = Mapping[str, CompiledKernel]


@dataclass(frozen=True)
class ArraySpec:
    """What is known of an array before there is one.

    Parameters
    ----------
    dtype : str
        The dtype of its elements.
    broadcastable : tuple of bool
        For each axis, whether its length is known to be 1.
    """

    dtype: str
    broadcastable: tuple[bool, ...]

    @classmethod
    def of(cls, array: Any) -> ArraySpec:
        """Return the spec of an array of the device or of NumPy, none of whose axes broadcasts."""
        return cls(array.dtype.name, (False,) * array.ndim)

    @property
    def ndim(self) -> int:
        """The number of axes."""
        return len(self.broadcastable)

    @property
    def broadcast_axes(self) -> list[int]:
        """The axes whose length is known to be 1."""
        return [axis for axis, flag in enumerate(self.broadcastable) if flag]

    @property
    def single(self) -> bool:
        """Whether the array is known to have one element."""
        return all(self.broadcastable)


@dataclass(eq=False)
class Operation(ABC):
    """A computation for arrays of certain specs, in a context.

    The fields of a subclass, a dataclass as well, say what it is made for.
    """

    #: Where it runs.
    context: Context

    #: Whether it uses arrays of the host by their shapes, and by tables (``optdb.runtime.tables``) that it puts on the
    #: device, alone. So its commands are the same for other values, with other tables.
    reads_tables_alone: ClassVar[bool] = False

    def __str__(self) -> str:
        return type(self).__name__

    @abstractmethod
    def kernels(self) -> list[Kernel]:
        """Return the kernels that `run` launches."""

    @abstractmethod
    def run(self, inputs: Sequence[Any], outputs: Outputs, kernels: Kernels) -> None:
        """Compute the outputs.

        Parameters
        ----------
        inputs : sequence
            Arrays of the device, and numbers or arrays of NumPy where the operation says so.
        outputs : sequence of list
            A storage cell for each output: ``outputs[0][0] = array``. See `output_array`.
        kernels : mapping
            The kernels of `kernels`, compiled for the context, by name.
        """

    def compute(self, *inputs: Any, outputs: int = 1) -> list[Array]:
        """Compile the kernels, run the operation, and return its outputs, of which there are `outputs`."""
        cells: list[list[Any]] = [[None] for _ in range(outputs)]
        self.run(inputs, cells, compile_kernels(self.kernels(), self.context, str(self)))
        return [cell[0] for cell in cells]


def check_lengths(op: Any, specs: Sequence[ArraySpec], arrays: Sequence[Array], empty: bool = False) -> None:
    """Check that arrays have length 1 where their specs promise it.

    Parameters
    ----------
    op : object
        What relies on it, for the error.
    specs, arrays : sequence
        What is known of the arrays, and these.
    empty : bool
        Whether length 0 will do, too: no kernel is launched for an empty result.

    Raises
    ------
    ValueError
        If an axis has another length.
    """
    for index, (spec, array) in enumerate(zip(specs, arrays, strict=True)):
        for axis in spec.broadcast_axes:
            length = array.shape[axis]
            # The order matters: while a function is traced, each comparison of an unknown length becomes a guard.
            if length != 1 and not (empty and length == 0):
                raise ValueError(
                    f"{op} takes array {index} with length 1 along axis {axis}, and it has length {length}"
                )


def output_array(storage: list[Any], context: Context, shape: Sequence[int], dtype: DTypeLike) -> Array:
    """Return an array for an output, in C order: the previous one if it fits, else a new one.

    Its contents are undefined. An allocation costs more than most kernels, so outputs are reused where possible.
    """
    shape = tuple(map(as_int, shape))
    previous = storage[0]
    if (
        isinstance(previous, Array)
        and previous.context == context.cl_context
        and previous.shape == shape
        and previous.dtype == dtype
        and previous.flags.c_contiguous
    ):
        return previous
    storage[0] = array = empty(context, shape, dtype)
    return array


def output_zeros(storage: list[Any], context: Context, shape: Sequence[int], dtype: DTypeLike) -> Array:
    """Return an array for an output like `output_array`, filled with zeros."""
    return fill_zeros(output_array(storage, context, shape, dtype))
