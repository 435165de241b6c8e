"""Lets optdb treat a device as if it had its own memory, for the fuzzers of Theano and of PyTensor."""

from __future__ import annotations

from dataclasses import replace

from optdb.runtime import pinned_memory
from optdb.runtime.context import Context
from optdb.runtime.context_options import TransferSizes

__all__ = ["use_separate_memory"]

_SIZES = TransferSizes(least=1, piece=64)


def use_separate_memory(context: Context) -> None:
    """Treat a device as if it did not share the host's memory; call this before anything is computed on the device.

    Arrays of any size are then copied to and from the device through pinned memory in pieces of at most 64 bytes,
    although direct access would be faster.
    """
    context.profile = replace(context.profile, shares_host_memory=False)
    context.options = replace(context.options, transfer_sizes=_SIZES)
    context.kept[pinned_memory.__name__] = pinned_memory.PinnedMemory(context.queue, _SIZES.piece)
