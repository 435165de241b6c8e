"""Commands that all-reduce small vectors across the devices of one or more processes.

A *round* copies a device's vectors to the host (``fetching``), waits until every device has copied its vectors, reduces
them (`EnqueueAllReduce`), and copies the results back (`EnqueueGive`). If all devices belong to one process, C code
runs the round without the GIL (``driver_batches``). If the devices belong to several processes, Python calls the
round's `reduce` function.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from optdb.numpy_types import AnyDtype, HostArray
from optdb.runtime.commands import Transfer
from optdb.runtime.context import Context
from optdb.runtime.driver_batches import DriverCalls, PreparedCall, driver_calls, icd_loader, loop_library
from optdb.runtime.fetching import EventHandle
from optdb.runtime.library import cl
from optdb.runtime.packing import host_vector

#: Maps each dtype that the C code can reduce to its size in bytes.
_NATIVE = {np.dtype("float32"): 4, np.dtype("float64"): 8}
_SUM, _MOMENTS = 0, 1


def _words(names: str) -> list[tuple[str, Any]]:
    """Return ctypes fields with the given names; each field holds a number or an address in 64 bits."""
    return [(name, ctypes.c_uint64) for name in names.split()]


class _Term(ctypes.Structure):
    """The C struct ``Term``."""

    _fields_ = _words("reduction itemsize size values pieces lengths counts results event")


class _Post(ctypes.Structure):
    """The C struct ``Post``."""

    _fields_ = _words("attempt terms")


class _MemberStruct(ctypes.Structure):
    """The C struct ``Member``."""

    _fields_ = (*_words("rank active attempt microseconds aborted"), ("seconds", ctypes.c_double))


class _RoundStruct(ctypes.Structure):
    """The C struct ``Round``."""

    _fields_ = _words("member posts terms count wait release late late_rank")


class MemberTable:
    """The table in which `count` devices of a process share their vectors.

    A round fails if any device does not join it within `timeout` seconds after the first device.
    """

    def __init__(self, count: int, timeout: float) -> None:
        self._count = count
        self._timeout = timeout
        self._aborted = ctypes.c_uint64()
        self._posts: dict[int, Any] = {}
        self._lock = threading.Lock()

    def member(self, rank: int) -> Member:
        """Return the member for the device with the given rank."""
        return Member(self, rank, self._timeout, self._aborted)

    def abort(self, attempt: int) -> None:
        """Fail all rounds in this attempt and in earlier attempts, including rounds that start later."""
        self._aborted.value = max(self._aborted.value, attempt)

    def posts(self, number: int) -> Any:
        """Return the records that all devices post for a round, indexed by rank."""
        with self._lock:
            if number not in self._posts:
                self._posts[number] = (_Post * self._count)()
            return self._posts[number]


class Member:
    """One device of a `MemberTable`."""

    def __init__(self, table: MemberTable, rank: int, timeout: float, aborted: ctypes.c_uint64) -> None:
        self._table = table
        self.record = _MemberStruct(
            rank=rank, microseconds=min(int(1e6 * timeout), 1 << 62), aborted=ctypes.addressof(aborted)
        )
        #: Whether C code runs the rounds in the current attempt; the value is the same on all devices.
        self.is_native = False

    def begin(self, attempt: int, active: int, is_native: bool) -> None:
        """Begin an attempt at a step; the number `attempt` is higher than in earlier attempts.

        `active` is the number of devices that take part, which are those with the lowest ranks. `is_native` says
        whether C code runs the rounds; all devices pass the same value.
        """
        self.record.active, self.record.seconds = active, 0.0
        self.record.attempt = attempt if is_native else 0
        self.is_native = is_native

    def posts(self, number: int) -> Any:
        """Return the records that all devices post for a round, indexed by rank."""
        return self._table.posts(number)

    @property
    def seconds(self) -> float:
        """Seconds that rounds in the current attempt took after the device's own vectors had reached the host."""
        seconds: float = self.record.seconds
        return seconds


@dataclass(frozen=True)
class Moments:
    """The layout of a vector that contains the moments of several arrays."""

    #: For each array, the number of its values in the vector, and the number of elements per channel on this device.
    lengths: tuple[int, ...]
    counts: tuple[int, ...]


@dataclass(frozen=True)
class VectorSpec:
    """The properties of a vector that an all-reduce reduces."""

    dtype: AnyDtype
    size: int
    result_size: int
    #: The layout of a vector of moments; None if the vector is summed.
    moments: Moments | None = None


class ExchangeRound:
    """The state of an all-reduce for one device: the device's vectors on the host, and the results.

    Other devices read the vectors. The object and the vectors must stay unchanged until all devices have finished the
    round.

    All devices use the same `number`, and the same `specs` except for element counts. `member` is None unless all
    devices belong to this process. If C code does not compute the results, `reduce` does; `reduce` raises an error if
    another device does not join.
    """

    def __init__(
        self,
        context: Context,
        number: int,
        specs: Sequence[VectorSpec],
        member: Member | None,
        reduce: Callable[[ExchangeRound], None],
    ) -> None:
        self.number, self.specs = number, tuple(specs)
        self._reduce = reduce
        owned = [host_vector(context, spec.dtype, size) for spec in specs for size in (spec.size, spec.result_size)]
        #: The device's own vectors, and the results of reducing the vectors of all devices.
        self.vectors, self.results = [values for _, values in owned[::2]], [values for _, values in owned[1::2]]
        self._kept: list[Any] = [owned, member]
        self.terms = (_Term * len(specs))(*map(self._term, specs, self.vectors, self.results))
        #: The events of the copies to the host, one for each vector.
        self.events = [
            EventHandle(ctypes.c_void_p.from_buffer(self.terms, i * ctypes.sizeof(_Term) + _Term.event.offset))
            for i in range(len(specs))
        ]
        self._member = member if all(np.dtype(spec.dtype) in _NATIVE for spec in specs) else None
        self.record = _RoundStruct(terms=ctypes.addressof(self.terms), count=len(specs))
        if self._member is not None:
            self._connect(self._member)

    def _term(self, spec: VectorSpec, values: HostArray, results: HostArray) -> _Term:
        term = _Term(_SUM, np.dtype(spec.dtype).itemsize, spec.size, values.ctypes.data, results=results.ctypes.data)
        if spec.moments is not None:
            lengths, counts = np.array(spec.moments.lengths, np.uint64), np.array(spec.moments.counts, np.float64)
            self._kept += lengths, counts
            term.reduction, term.pieces = _MOMENTS, lengths.size
            term.lengths, term.counts = lengths.ctypes.data, counts.ctypes.data
        return term

    def _connect(self, member: Member) -> None:
        self.record.member = ctypes.addressof(member.record)
        self.record.posts = ctypes.addressof(member.posts(self.number))
        if driver_calls() is not None:  # without driver calls, there are no events
            driver = icd_loader()
            self.record.wait = ctypes.cast(driver.clWaitForEvents, ctypes.c_void_p).value
            self.record.release = ctypes.cast(driver.clReleaseEvent, ctypes.c_void_p).value

    @property
    def call(self) -> PreparedCall | None:
        """The prepared call that waits for the vectors and computes the results; None if Python waits and computes."""
        library = loop_library()
        if library is None or self._member is None:
            return None
        return PreparedCall(library.optdb_all_reduce, ctypes.c_void_p(ctypes.addressof(self.record)))

    @property
    def missing(self) -> int | None:
        """The rank of a device that did not join the current attempt in time; None if no device is missing."""
        member = self._member
        is_late = member is not None and member.is_native and self.record.late == member.record.attempt
        return self.record.late_rank if is_late else None

    @property
    def is_native(self) -> bool:
        """Whether C code runs the round in the current attempt; the value is the same on all devices."""
        return self._member is not None and self._member.is_native

    def run(self) -> None:
        """Wait for the vectors of all devices and compute the results."""
        call = self.call if self.is_native else None
        if call is None or call():
            self.wait()
            self._reduce(self)

    def wait(self) -> None:
        """Wait until the device's own vectors are on the host."""
        for handle in self.events:
            event = handle.take()
            if event is not None:
                event.wait()


@dataclass(eq=False, slots=True)
class EnqueueGive(Transfer):
    """Copies an all-reduce's result to the device; the copy does not block if it has a prepared call."""

    kind: ClassVar[str] = "give"

    round: ExchangeRound
    number: int  #: The vector's index in `round.results`.
    target: Any
    offset: int

    @property
    def nbytes(self) -> int:
        return self.round.results[self.number].nbytes

    def prepared_call(self, calls: DriverCalls) -> PreparedCall:
        return calls.write(self.queue, self.target, self.offset, self.round.results[self.number])

    def enqueue_on(self, queue: cl.CommandQueue) -> Any:
        result = self.round.results[self.number]
        return cl.enqueue_copy(queue, self.target, result, dst_offset=self.offset, is_blocking=True)


@dataclass(eq=False, slots=True)
class EnqueueAllReduce(Transfer):
    """Waits until the vectors of all devices are on the host, and computes the results of the all-reduce."""

    kind: ClassVar[str] = "all-reduce"
    _fields: ClassVar = ()

    round: ExchangeRound

    @property
    def repeated_call(self) -> PreparedCall | None:
        """The call to C code, which is compiled on first use; None if Python computes the results."""
        return self.round.call

    def enqueue(self) -> None:
        self.round.run()
