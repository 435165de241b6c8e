"""The memory budget of a function on a device.

Some drivers grant any allocation and fail when the memory is used, so optdb counts the memory of a function's values.
The count includes the function's inputs, but no other functions or processes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from typing import Any

from optdb.device.plans.linked import LinkedFunction, Node, ValueId
from optdb.runtime.arrays import Array
from optdb.runtime.buffer_assignment import Check
from optdb.runtime.commands import Memory
from optdb.runtime.library import cl
from optdb.runtime.recording import ArrayLayout, Recorder, Segment

_NAMED = 5
_INTERMEDIATE = "an intermediate value"


def allowed(context: cl.Context, fraction: float) -> int:
    """Return how many bytes a function may use."""
    return int(context.devices[0].global_mem_size * fraction)


def _given_bytes(linked: LinkedFunction, context: cl.Context) -> int:
    """Return how many bytes a function's inputs and constants use in a context."""
    values = _arrays(linked, context, lambda var: var not in linked.producers)
    return sum({array.base_data.int_ptr: array.base_data.size for _, array in values}.values())


def _arrays(
    linked: LinkedFunction, context: cl.Context, wanted: Callable[[ValueId], bool]
) -> Iterator[tuple[ValueId, Array]]:
    """Yield the `wanted` values that are arrays in the context, with their arrays."""
    for var in filter(wanted, linked.cells):
        value = linked.value(var)
        if isinstance(value, Array) and value.base_data is not None and value.context == context:
            yield var, value


class BudgetedRecorder(Recorder):
    """A recorder that raises an error when the function exceeds the budget."""

    def __init__(self, linked: LinkedFunction) -> None:
        super().__init__()
        self._linked = linked
        self._in_loop = False
        self._given: dict[cl.Context, int] = {}
        #: An upper bound for the bytes that the function holds, by context.
        self._held_nbytes: dict[cl.Context, int] = {}

    def allocate(self, buffer: cl.Buffer, nbytes: int) -> Memory:
        """Record a new buffer, and return its memory; raise an error if the function would exceed the budget."""
        memory = super().allocate(buffer, nbytes)
        context = memory.context
        if context not in self._given:
            self._given[context] = _given_bytes(self._linked, context)
        self._held_nbytes[context] = self._held_nbytes.get(context, 0) + memory.nbytes
        fraction = self._linked.options().device_memory_fraction
        if self._given[context] + self._held_nbytes[context] > allowed(context, fraction):
            held = self._held(memory)
            self._held_nbytes[context] = sum(allocation.nbytes for allocation in held)
            sizes = (
                (self._linked.describe(*origin) if origin else _INTERMEDIATE, allocation.nbytes)
                for allocation, origin in held.items()
            )
            _require(context, fraction, self._held_nbytes[context], self._given[context], sizes)
        return memory

    def node(self, node: Node) -> AbstractContextManager[Segment]:
        self._in_loop = node.is_loop
        return self.segment()

    def _held(self, last: Memory) -> dict[Memory, tuple[ValueId, ArrayLayout] | None]:
        """Map each held memory block to its value, if any; the block `last` has just been allocated."""
        # A loop's steps release the memory that they allocate.
        fresh = [last] if self._in_loop else self._segment.allocated
        held: dict[Memory, Any] = dict.fromkeys(memory for memory in fresh if memory.context == last.context)
        for var, array in _arrays(self._linked, last.context, self._linked.producers.__contains__):
            layout = self.layout(array)
            if layout.memory is not None and layout.memory.buffer is None:
                held[layout.memory] = var, layout
        return held


def check_plan(linked: LinkedFunction, layouts: dict[ValueId, ArrayLayout]) -> Check:
    """Return a check for `BufferAssignment`, which raises an error if a plan exceeds the budget."""

    def check(context: cl.Context, nbytes: int, memories: Iterable[Memory]) -> None:
        names = {layout.memory: (var, layout) for var, layout in reversed(layouts.items())}
        describe, fraction = linked.describe, linked.options().device_memory_fraction
        sizes = ((describe(*names[memory]) if memory in names else _INTERMEDIATE, memory.nbytes) for memory in memories)
        _require(context, fraction, nbytes, _given_bytes(linked, context), sizes)

    return check


def _require(context: cl.Context, fraction: float, nbytes: int, given: int, sizes: Iterable[tuple[str, int]]) -> None:
    """Raise MemoryError if the budget is exceeded; name the largest values and remedies."""
    if nbytes + given <= allowed(context, fraction):
        return
    device = context.devices[0]
    limit = f"{device.global_mem_size:,} bytes" + (
        f", of which the fraction {fraction:g} may be used" if fraction < 1 else ""
    )
    largest = sorted(sizes, key=lambda entry: -entry[1])[:_NAMED]
    listed = "\n".join(f"  {size:,} bytes: {name}" for name, size in largest)
    raise MemoryError(
        f"the values of this function need {nbytes:,} bytes at once, besides {given:,} bytes of inputs, shared "
        f"variables and constants, but {device.name.strip()} has {limit}.\n"
        "The largest:\n"
        f"{listed}\n"
        "The cure: use smaller inputs, such as fewer examples in a batch, float32 instead of float64, a device with "
        "more memory, or a larger optdb.device_memory_fraction"
    )
