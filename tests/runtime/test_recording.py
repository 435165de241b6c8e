"""A thread's commands are recorded correctly while other threads use the same device."""

from __future__ import annotations

from types import SimpleNamespace

from optdb.runtime.commands import AllocateBuffer, EnqueueCopy
from optdb.runtime.dispatch import listened
from optdb.runtime.recording import Recorder


def buffer(handle=4711):
    """Return a fake buffer with a chosen handle, and with the attributes that the recorder reads."""
    return SimpleNamespace(int_ptr=handle, size=8, context=None)


def test_a_buffer_of_another_thread_with_the_handle_of_a_released_one_is_not_taken_for_it():
    recorder, released = Recorder(), buffer()
    recorder.on(AllocateBuffer(released, 8))
    own = recorder.memory(released)
    kept_by_the_context = buffer()
    AllocateBuffer(kept_by_the_context, 8)  # the recorder does not see this, as if another thread did it
    memory = recorder.memory(kept_by_the_context)
    assert own.buffer is None and memory.buffer is kept_by_the_context
    assert recorder.memory(kept_by_the_context) is memory


def test_a_buffer_is_the_same_memory_throughout_a_recording():
    recorder, old, new = Recorder(), buffer(1), buffer(2)
    with listened(recorder), recorder.segment() as segment:
        recorder.on(AllocateBuffer(new, 8))
        for command in (EnqueueCopy(None, new, 0, old, 0, 8), EnqueueCopy(None, old, 0, new, 0, 8)):
            recorder.write(command)
    there, back = segment.commands
    assert segment.allocated == [there.target] == [back.source] and there.target.buffer is None
    assert there.source is back.target and there.source.buffer is old
