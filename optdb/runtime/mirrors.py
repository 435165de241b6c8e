"""Host copies of device vectors whose values are read many times (`HostMirror`)."""

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
    """A vector on the host, and a non-blocking call that copies it from arrays on a device.

    The call is prepared (``driver_calls``), and remade only for another array. It keeps the GIL: a thread that releases
    the GIL may wait longer for it than the copy takes. The memory is pinned if possible.

    Parameters
    ----------
    context : Context
        The device's context.
    dtype : numpy.dtype
        The dtype of the elements.
    size : int
        The number of elements.
    """

    def __init__(self, context: Context, dtype: AnyDtype, size: int) -> None:
        self._context = context
        self._owner, self.values = host_vector(context, dtype, size)
        #: The call, with its buffer and offset.
        self._call: tuple[PreparedRead | None, Any, int] = None, None, 0

    def fits(self, dtype: AnyDtype, size: int) -> bool:
        """Tell whether the vector has a dtype and a number of elements."""
        return self.values.dtype == dtype and self.values.size == size

    def fetch(self, array: Array) -> cl.Event | None:
        """Start to copy a C-contiguous array from the device; return the event, None if there is nothing to copy."""
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
        """Make a script start to copy a C-contiguous array from the device; return the copy to wait for."""
        return script.download(array.queue, array.base_data, array.offset, self.values) if self.values.size else None

    def _prepared(self, array: Array) -> cl.Event | None:
        """Run the prepared call for an array; return its event, or None if there is no call."""
        if listening() is not None:
            return None
        call, buffer, offset = self._call
        if buffer is not array.base_data or offset != array.offset:
            calls = driver_calls(array.queue)
            call = None if calls is None else calls.read(array.queue, array.base_data, array.offset, self.values)
            # Keep the buffer alive, so that its handle is not reused.
            self._call = call, array.base_data, array.offset
        return None if call is None else call()
