"""Operations: computations on a device, independent of the host framework.

An :class:`Operation` is made for arrays with given dtypes, ranks and broadcast patterns. `Operation.compute` compiles
and runs an operation: ``(result,) = SortAlongAxis(context, ArraySpec.of(x)).compute(x, -1)``.
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

#: The storage cells of outputs, which are lists of one element. A cell may hold a value from an earlier call.
Outputs = Sequence[list[Any]]
#: The compiled kernels of an operation, by name.
Kernels = Mapping[str, CompiledKernel]


@dataclass(frozen=True)
class ArraySpec:
    """The properties of an array that are known at compile time: its dtype, and whether each axis has length 1."""

    dtype: str
    broadcastable: tuple[bool, ...]

    @classmethod
    def of(cls, array: Any) -> ArraySpec:
        """Return the spec of a device or NumPy array, without broadcastable axes."""
        return cls(array.dtype.name, (False,) * array.ndim)

    @property
    def ndim(self) -> int:
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
    """A computation for arrays with given specs, in a context.

    Subclasses are dataclasses whose fields are the operation's parameters.
    """

    context: Context

    #: Whether host arrays are used only through their shapes and through tables (``optdb.runtime.tables``), so that
    #: different values need the same commands.
    reads_tables_alone: ClassVar[bool] = False

    def __str__(self) -> str:
        return type(self).__name__

    @abstractmethod
    def kernels(self) -> list[Kernel]:
        """Return the kernels that `run` launches."""

    @abstractmethod
    def run(self, inputs: Sequence[Any], outputs: Outputs, kernels: Kernels) -> None:
        """Compute the outputs and put them into their storage cells: ``outputs[0][0] = array`` (see `output_array`).

        The inputs are device arrays, or host scalars and NumPy arrays for inputs that the operation takes from the
        host.
        """

    def compute(self, *inputs: Any, outputs: int = 1) -> list[Array]:
        """Compile the kernels, run the operation, and return its outputs; `outputs` is the number of outputs."""
        cells: list[list[Any]] = [[None] for _ in range(outputs)]
        self.run(inputs, cells, compile_kernels(self.kernels(), self.context, str(self)))
        return [cell[0] for cell in cells]


def check_lengths(op: Any, specs: Sequence[ArraySpec], arrays: Sequence[Any], empty: bool = False) -> None:
    """Raise ValueError unless arrays have length 1 where their specs promise it; `op` is named in the error.

    With `empty`, length 0 is also accepted, since no kernel is launched for an empty result.
    """
    for index, (spec, array) in enumerate(zip(specs, arrays, strict=True)):
        for axis in spec.broadcast_axes:
            length = array.shape[axis]
            # The order matters: during tracing, each comparison of an unknown length becomes a guard.
            if length != 1 and not (empty and length == 0):
                raise ValueError(
                    f"{op} expects length 1 along axis {axis} of array {index}, but it has length {length}"
                )


def output_array(storage: list[Any], context: Context, shape: Sequence[int], dtype: DTypeLike) -> Array:
    """Return an uninitialized C-contiguous array for an output: the array in `storage` if it fits, else a new one."""
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
    """Return an array for an output, as `output_array` does, but filled with zeros."""
    return fill_zeros(output_array(storage, context, shape, dtype))
