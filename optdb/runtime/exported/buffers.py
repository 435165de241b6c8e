"""Records for a saved trace's memory blocks and results. A result is a device array or is computed on the host."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from optdb.numpy_types import HostArray
from optdb.runtime.deferred import SavedSource, source
from optdb.runtime.expressions import Ref, numbers, size, sizes
from optdb.runtime.operands import Slot, memory_slot
from optdb.runtime.records import Record, Where, array, dtype, flag, index_in, list_of, maybe, one_of, saved, within

#: The maximum number of axes that a result may have.
MAX_DIMENSIONS = 32


@dataclass(frozen=True, slots=True)
class SharedMemory(Record):
    """The memory that holds a shared value."""

    kind: ClassVar[str] = "shared"

    state: int = saved(index_in("states"))


@dataclass(frozen=True, slots=True, eq=False)
class ConstantMemory(Record):
    """Memory with values that never change."""

    kind: ClassVar[str] = "constant"

    array: HostArray = saved(array)


@dataclass(frozen=True, slots=True)
class Workspace(Record):
    """Memory for values that a call computes."""

    kind: ClassVar[str] = "workspace"

    nbytes: int | Ref = saved(size)
    own_buffer: bool = saved(flag)  #: Whether the memory must start at offset 0 of a buffer.


@dataclass(frozen=True, slots=True)
class ArrayResult(Record):
    """An array on the device."""

    kind: ClassVar[str] = "array"

    dtype: str = saved(dtype)
    memory: Slot | None = saved(maybe(memory_slot))  #: None if the array has no elements.
    offset: int | Ref = saved(size)  #: The offset in bytes.
    shape: tuple[Any, ...] = saved(sizes)
    strides: tuple[Any, ...] = saved(sizes)

    def check(self, where: Where) -> None:
        """Check the number of dimensions."""
        if len(self.shape) > MAX_DIMENSIONS:
            raise where.at("shape").wrong(f"a list of at most {MAX_DIMENSIONS} lengths", self.shape)
        if len(self.strides) != len(self.shape):
            raise where.at("strides").wrong(f"a list of {len(self.shape)} strides", self.strides)


@dataclass(frozen=True, slots=True)
class NumbersResult(Record):
    """Numbers that the host computes: a vector, or one number as an array with `ndim` axes of length 1."""

    kind: ClassVar[str] = "numbers"

    dtype: str = saved(dtype)
    numbers: tuple[Any, ...] = saved(numbers)
    ndim: int = saved(within(range(MAX_DIMENSIONS + 1)))

    def check(self, where: Where) -> None:
        """Check that there is exactly one number unless the result is a vector."""
        if self.ndim != 1 and len(self.numbers) != 1:
            raise where.at("numbers").wrong("a list of one number", self.numbers)

    @property
    def shape(self) -> tuple[int, ...]:
        """The array's shape."""
        return (len(self.numbers),) if self.ndim == 1 else (1,) * self.ndim


@dataclass(frozen=True, slots=True, eq=False)
class ConstantResult(Record):
    """A constant array."""

    kind: ClassVar[str] = "constant"

    array: HostArray = saved(array)


@dataclass(frozen=True, slots=True, eq=False)
class HostResult(Record):
    """An array that the host computes from a source. The values of uploads are computed in the same way."""

    kind: ClassVar[str] = "host"

    value: SavedSource = saved(source)


MemorySpec = SharedMemory | ConstantMemory | Workspace
Result = ArrayResult | NumbersResult | ConstantResult | HostResult
memories = list_of(one_of(SharedMemory, ConstantMemory, Workspace), "memories", list)
results = list_of(one_of(ArrayResult, NumbersResult, ConstantResult, HostResult), "results", list)
