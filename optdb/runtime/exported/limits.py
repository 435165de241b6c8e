"""Limits of a file: memory of the host, memory of the device, and work in one call.

A file of a few kilobytes can ask for any of these without end. Each is added up before anything is allocated or
enqueued, and refused, by a :class:`LimitError` that names what asks for it and how to raise the limit.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from optdb.runtime.exported.errors import LimitError

GIBIBYTE = 1 << 30

#: What Python's objects take for a byte of the manifest, for a byte of a program while it is checked, and for a member
#: of the archive, at most.
MANIFEST_BYTES_PER_BYTE = 128
PROGRAM_BYTES_PER_BYTE = 64
MEMBER_BYTES = 2048

#: How many sizes of arguments each function caches, with the memory for their values.
MAX_BOUND_PER_METHOD = 8


@dataclass(frozen=True)
class Limits:
    """The limits of a file."""

    #: Memory of the host, for what is loaded, and for the results and uploads of a call. The arguments of a call are
    #: its caller's, and do not count.
    max_host_bytes: int = 4 * GIBIBYTE
    #: Memory of the device: shared values, constants, and the values of calls.
    max_device_bytes: int = 4 * GIBIBYTE
    #: Work items of all kernel launches of one call; 64 bytes that are copied, filled or uploaded count as one.
    max_work_items: int = 1 << 38

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if not isinstance(value, int) or isinstance(value, bool) or value < 0:
                raise ValueError(f"{name} is a whole number from 0 on, and {value!r} was given")

    def check(self, name: str, wanted: int, what: str) -> None:
        """Raise LimitError if `wanted`, which is how much there would be in all, is more than the limit of a name.

        The error begins with `what` asks for it, ahead of 'would take'.
        """
        limit = getattr(self, name)
        if wanted <= limit:
            return
        unit = {"max_host_bytes": "bytes of the host's memory", "max_device_bytes": "bytes of the device's memory"}
        raise LimitError(
            f"{what} would take {wanted:,} {unit.get(name, 'work items')}, and may take {limit:,}.\nThe cure: if you "
            f"trust the file to need that, optdb.load(..., {name}={wanted})"
        )


class TakesMemory(Protocol):
    """What a budget caches: a trace that is bound for sizes of arguments, and the bytes of the device and the host."""

    nbytes: int
    host_bytes: int


_Bound = TypeVar("_Bound", bound=TakesMemory)


class Budget(Generic[_Bound]):
    """The memory that a loaded file has taken so far, and its cache of bound traces.

    The cache evicts the least recently used traces.
    """

    def __init__(self, limits: Limits, host_bytes: int) -> None:
        self.limits = limits
        #: The device bytes and host bytes that are taken for good.
        self.device_bytes = 0
        self._host_bytes = host_bytes
        self._bound: OrderedDict[tuple[str, Hashable], _Bound] = OrderedDict()

    def get(self, method: str, key: Hashable) -> _Bound | None:
        """Return the bound trace for calls of a method like one; it becomes the most recently used."""
        bound = self._bound.get((method, key))
        if bound is not None:
            self._bound.move_to_end((method, key))
        return bound

    def put(self, method: str, key: Hashable, bound: _Bound) -> None:
        """Keep the bound trace for calls of a method like one."""
        self._bound[method, key] = bound

    def of_method(self, method: str) -> list[_Bound]:
        """Return the bound traces of a method."""
        return [bound for (name, _), bound in self._bound.items() if name == method]

    def begin(self, method: str) -> None:
        """Evict a method's least recently used trace if its cache is full, before it gets another one."""
        ours = [key for key in self._bound if key[0] == method]
        for key in ours[: max(len(ours) + 1 - MAX_BOUND_PER_METHOD, 0)]:
            del self._bound[key]

    def keep_on_device(self, nbytes: int, what: str) -> None:
        """Take memory of the device for good; raise LimitError if there would be too much of it."""
        self.reserve_device(nbytes, what)
        self.device_bytes += nbytes

    def reserve_device(self, nbytes: int, what: str) -> None:
        """Evict traces until more memory of the device can be taken; raise LimitError if it never can."""
        self.limits.check("max_device_bytes", self.device_bytes + nbytes, what)
        self._evict("max_device_bytes", "nbytes", self.device_bytes + nbytes)

    def reserve_host(self, nbytes: int, what: str) -> None:
        """Evict traces until more memory of the host can be taken; raise LimitError if it never can."""
        self.limits.check("max_host_bytes", self._host_bytes + nbytes, what)
        self._evict("max_host_bytes", "host_bytes", self._host_bytes + nbytes)

    def _evict(self, limit: str, attribute: str, wanted: int) -> None:
        """Evict the least recently used traces until all is within a limit."""
        wanted += sum(getattr(bound, attribute) for bound in self._bound.values())
        while wanted > getattr(self.limits, limit) and self._bound:
            _, bound = self._bound.popitem(last=False)
            wanted -= getattr(bound, attribute)
