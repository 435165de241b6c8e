"""Shared memory between dask workers on one host (`SharedArrays`): large arrays are copied into the sender's segment.

A segment is an anonymous file (memfd) that peers map through /proc. A sender uses its segment for a peer only after the
peer has confirmed that it has mapped the segment; until then, and if arrays do not fit into the segment, arrays are
sent in messages. Since a segment has no name, the kernel frees it even if processes are killed.
"""

from __future__ import annotations

import errno
import logging
import math
import mmap
import os
import uuid
import weakref
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from optdb.distributed.exchange import PASSED_ON, SMALL_BYTES, Tag

__all__ = ["SharedArrays"]

logger = logging.getLogger(__name__)

#: The alignment in bytes of each array in a segment.
ALIGNMENT_BYTES = 64


class ArraySegment:
    """Memory that this process writes and other processes on its host read; raises `OSError` if it is unavailable."""

    def __init__(self, nbytes: int) -> None:
        if not hasattr(os, "memfd_create"):
            raise OSError(errno.ENOSYS, "this Python has no os.memfd_create")
        self.nbytes = nbytes
        name = f"optdb-{uuid.uuid4().hex}"
        number = os.memfd_create(name)
        close = weakref.finalize(self, os.close, number)
        try:
            # Without this call, a write to a page for which there is no memory would end the process.
            os.posix_fallocate(number, 0, nbytes)
            self.memory = mmap.mmap(number, nbytes)
        except OSError:
            close()
            raise
        #: The data with which another process maps the segment; the name is unique across hosts.
        self.offer = {"name": name, "pid": os.getpid(), "descriptor": number}
        #: The addresses of workers that have received the offer, and of workers that have mapped the segment.
        self.offered_to: set[str] = set()
        self.mapped_by: set[str] = set()


class SharedArrays:
    """A worker's segment for a session, and the segments of other workers that it has mapped.

    The thread that runs steps calls `begin`, `offer` and `store`. The event loop's thread calls the other methods.
    """

    def __init__(self) -> None:
        self._segment: ArraySegment | None = None
        #: The smallest number of bytes for which no segment could be allocated.
        self._unavailable_nbytes = math.inf
        #: The number of bytes that this attempt's arrays need in the segment, including arrays that do not fit.
        self._needed_nbytes = 0
        #: The tag of the latest large arrays, their offsets, and their description once they are in the segment.
        self._tag: Tag | None = None
        self._offsets: list[int] = []
        self._stored: dict[str, Any] | None = None
        #: Maps the addresses of other workers to the names and the memory of their segments.
        self._mapped: dict[str, tuple[str, mmap.mmap]] = {}

    # As a sender

    def begin(self) -> None:
        """Begin an attempt, whose arrays overwrite the arrays of earlier attempts.

        No worker is still reading the earlier arrays, because the client begins an attempt only after each of its
        workers has answered or was excluded. If the arrays of the previous attempt did not fit into the segment, a
        larger segment replaces it.
        """
        needed, self._needed_nbytes, self._tag = self._needed_nbytes, 0, None
        available = 0 if self._segment is None else self._segment.nbytes
        if available < needed < self._unavailable_nbytes:
            try:
                self._segment = ArraySegment(needed)
            except OSError as error:
                logger.info("no shared memory of %d bytes, arrays are sent in messages: %s", needed, error)
                self._unavailable_nbytes = needed

    def offer(self, address: str) -> dict[str, Any] | None:
        """Return the offer for mapping the segment; None if there is no segment or the worker already has the offer."""
        segment = self._segment
        if segment is None or address in segment.offered_to:
            return None
        segment.offered_to.add(address)
        return segment.offer

    def confirm(self, address: str, name: str) -> None:
        """Record that a worker has mapped the segment with this name."""
        segment = self._segment
        if segment is not None and segment.offer["name"] == name:
            segment.mapped_by.add(address)

    def store(self, address: str, tag: Tag, arrays: Sequence[np.ndarray]) -> dict[str, Any] | None:
        """Copy arrays into the segment and return their description; return None if a message must carry them.

        Arrays with the same tag are equal for all receivers, and are copied only once.
        """
        # Do not store arrays for workers without a part of the batch: these workers may still be copying the arrays to
        # their device when the next attempt overwrites the segment.
        if tag[1] == PASSED_ON or sum(array.nbytes for array in arrays) <= SMALL_BYTES:
            return None
        if not all(map(_has_plain_dtype, arrays)):
            return None
        if tag != self._tag:
            self._tag, self._stored, self._offsets = tag, None, []
            for array in arrays:
                self._offsets.append(self._needed_nbytes)
                self._needed_nbytes += -(-array.nbytes // ALIGNMENT_BYTES) * ALIGNMENT_BYTES
        segment = self._segment
        if segment is None or address not in segment.mapped_by or self._needed_nbytes > segment.nbytes:
            return None
        if self._stored is None:
            layout = []
            for array, offset in zip(arrays, self._offsets, strict=True):
                layout.append([array.dtype.str, list(array.shape), offset])
                _view(segment.memory, *layout[-1])[...] = array
            self._stored = {"name": segment.offer["name"], "layout": layout}
        return self._stored

    # As a receiver

    def map(self, address: str, offer: dict[str, Any]) -> bool:
        """Map another worker's segment; return False if it is not accessible, for example from another host."""
        if offer["pid"] == os.getpid():
            return False  # within a process, messages contain references to arrays
        path, target = Path(f"/proc/{offer['pid']}/fd/{offer['descriptor']}"), Path(f"/memfd:{offer['name']} (deleted)")
        with suppress(OSError):
            # In another container, the path may lead to a file that must not be opened.
            if path.readlink() != target:
                return False
            number = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            try:
                if Path(f"/proc/self/fd/{number}").readlink() == target:
                    self._mapped[address] = offer["name"], mmap.mmap(number, 0, prot=mmap.PROT_READ)
                    return True
            finally:
                os.close(number)
        return False

    def find(self, address: str, stored: dict[str, Any]) -> list[np.ndarray]:
        """Return read-only views of the arrays that another worker has stored; they are valid during the attempt."""
        name, memory = self._mapped.get(address, ("", None))
        if memory is None or name != stored["name"]:
            raise LookupError(f"the segment {stored['name']} of {address} is not mapped")
        return [_view(memory, *described) for described in stored["layout"]]

    def close(self) -> None:
        """Drop all segments; their memory is freed when no array refers to it."""
        self._segment, self._unavailable_nbytes = None, 0
        self._mapped.clear()


def _has_plain_dtype(array: np.ndarray) -> bool:
    """Return whether the dtype's string describes the dtype completely."""
    return not array.dtype.hasobject and np.dtype(array.dtype.str) == array.dtype


def _view(memory: mmap.mmap, dtype: str, shape: Sequence[int], offset: int) -> np.ndarray:
    return np.ndarray(tuple(shape), dtype, buffer=memory, offset=offset)
