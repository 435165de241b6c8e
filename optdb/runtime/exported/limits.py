"""The limits for a loaded file: host memory, device memory, and work in one call.

A small file can request any amount of memory and work. The amounts are checked before anything is allocated or
enqueued.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from optdb.runtime.errors import LimitError

GIBIBYTE = 1 << 30

#: Upper bounds for the bytes of Python objects per byte of the manifest, per byte of a program while it is checked, and
#: per member of the archive.
MANIFEST_BYTES_PER_BYTE = 128
PROGRAM_BYTES_PER_BYTE = 64
MEMBER_BYTES = 2048

#: The maximum number of bound traces that each function caches, with the memory for their values.
MAX_BOUND_PER_METHOD = 8


@dataclass(frozen=True)
class Limits:
    """The limits for a loaded file."""

    #: Host memory, in bytes, for the file and for a call's results and uploads, but not for a call's arguments.
    max_host_bytes: int = 4 * GIBIBYTE
    #: Device memory, in bytes, for shared values, constants and values computed in calls.
    max_device_bytes: int = 4 * GIBIBYTE
    #: Number of work items in all launches of one call; 64 bytes copied, filled or uploaded count as one item.
    max_work_items: int = 1 << 38

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if not isinstance(value, int) or isinstance(value, bool) or value < 0:
                raise ValueError(f"{name} must be an integer of 0 or more, not {value!r}")

    def check(self, name: str, wanted: int, what: str) -> None:
        """Raise LimitError if the amount `wanted` exceeds the named limit; the message begins with `what`."""
        limit = getattr(self, name)
        if wanted <= limit:
            return
        unit = {"max_host_bytes": "bytes of the host's memory", "max_device_bytes": "bytes of the device's memory"}
        raise LimitError(
            f"{what} would take {wanted:,} {unit.get(name, 'work items')}, but the limit is {limit:,}.\n"
            f"The cure: if you trust the file, optdb.load(..., {name}={wanted})"
        )


class TakesMemory(Protocol):
    """A bound trace in a budget's cache, with the device and host bytes that it takes."""

    nbytes: int
    host_bytes: int


_Bound = TypeVar("_Bound", bound=TakesMemory)


class Budget(Generic[_Bound]):
    """The memory that a loaded file uses, and a cache of bound traces that evicts the least recently used."""

    def __init__(self, limits: Limits, host_bytes: int) -> None:
        self.limits = limits
        #: The numbers of device bytes and host bytes that are never freed.
        self.device_bytes = 0
        self._host_bytes = host_bytes
        self._bound: OrderedDict[tuple[str, Hashable], _Bound] = OrderedDict()

    def get(self, method: str, key: Hashable) -> _Bound | None:
        """Return a method's bound trace for a key and mark the trace as most recently used."""
        bound = self._bound.get((method, key))
        if bound is not None:
            self._bound.move_to_end((method, key))
        return bound

    def put(self, method: str, key: Hashable, bound: _Bound) -> None:
        """Cache a method's bound trace under a key."""
        self._bound[method, key] = bound

    def of_method(self, method: str) -> list[_Bound]:
        """Return a method's cached traces."""
        return [bound for (name, _), bound in self._bound.items() if name == method]

    def begin(self, method: str) -> None:
        """Make room for another trace of a method: evict its least recently used trace if its cache is full."""
        ours = [key for key in self._bound if key[0] == method]
        for key in ours[: max(len(ours) + 1 - MAX_BOUND_PER_METHOD, 0)]:
            del self._bound[key]

    def keep_on_device(self, nbytes: int, what: str) -> None:
        """Reserve device memory permanently; raise LimitError if the total exceeds the limit."""
        self.reserve_device(nbytes, what)
        self.device_bytes += nbytes

    def reserve_device(self, nbytes: int, what: str) -> None:
        """Evict traces until the requested device memory fits within the limit; raise LimitError if it cannot fit."""
        self.limits.check("max_device_bytes", self.device_bytes + nbytes, what)
        self._evict("max_device_bytes", "nbytes", self.device_bytes + nbytes)

    def reserve_host(self, nbytes: int, what: str) -> None:
        """Evict traces until the requested host memory fits within the limit; raise LimitError if it cannot fit."""
        self.limits.check("max_host_bytes", self._host_bytes + nbytes, what)
        self._evict("max_host_bytes", "host_bytes", self._host_bytes + nbytes)

    def _evict(self, limit: str, attribute: str, wanted: int) -> None:
        wanted += sum(getattr(bound, attribute) for bound in self._bound.values())
        while wanted > getattr(self.limits, limit) and self._bound:
            _, bound = self._bound.popitem(last=False)
            wanted -= getattr(bound, attribute)
