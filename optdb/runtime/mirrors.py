"""Vectors on the host beside vectors on a device, for values that are read many times (`HostMirror`)."""

from __future__ import annotations

from typing import Any

from optdb.numpy_types import AnyDtype
from optdb.runtime.arrays import Array
from optdb.runtime.commands import EnqueueDownload, enqueue, listening
from optdb.runtime.context import Context
from optdb.runtime.driver_calls import PreparedRead, driver_calls
from optdb.runtime.library import cl
from optdb.runtime.packing import host_vector
from optdb.runtime.scripts import Script

__all__ = ["HostMirror"]


class HostMirror:
    """A vector on the host, and a call that copies it from arrays on a device without waiting.

    The call is prepared (``driver_calls``), and made anew only for another array. It keeps Python's lock: a thread that
    gives it away may wait for it for longer than such a copy takes. The memory is pinned where that is possible.

    Parameters
    ----------
    context : Context
        Of the device.
    dtype : numpy.dtype
        Of the elements.
    size : int
        The number of elements.
    """

    def __init__(self, context: Context, dtype: AnyDtype, size: int) -> None:
        self._context = context
        self._owner, self.values = host_vector(context, dtype, size)
        #: The call, and the buffer and the offset that it is made for.
        self._call: tuple[PreparedRead | None, Any, int] = None, None, 0

    def fits(self, dtype: AnyDtype, size: int) -> bool:
        """Tell whether the vector has a dtype and a number of elements."""
        return self.values.dtype == dtype and self.values.size == size

    def fetch(self, array: Array) -> cl.Event | None:
        """Begin to copy an array in C order from the device; return the event, None if there is nothing to wait for."""
        if not self.values.size:
            return None
        event = self._prepared(array)
        if event is None:
            command = EnqueueDownload(array.queue, self.values, array.base_data, array.offset, False)
            enqueue(command)
            event = command.event
        array.queue.flush()
        return event

    def fetch_by(self, script: Script, array: Array) -> Any:
        """Let a script begin to copy an array in C order from the device; return what waits for it."""
        return script.download(array.queue, array.base_data, array.offset, self.values) if self.values.size else None

    def _prepared(self, array: Array) -> cl.Event | None:
        """Make the prepared call for an array; return its event, or None where there is no call."""
        if listening() is not None:
            return None
        call, buffer, offset = self._call
        if buffer is not array.base_data or offset != array.offset:
            calls = driver_calls(array.queue)
            call = None if calls is None else calls.read(array.queue, array.base_data, array.offset, self.values)
            # With its buffer, which no other one can then share the handle of.
            self._call = call, array.base_data, array.offset
        return None if call is None else call()
