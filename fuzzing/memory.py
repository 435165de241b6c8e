"""Treats a device as one with its own memory; the fuzzers of Theano and of PyTensor use this."""

from __future__ import annotations

from dataclasses import replace

from optdb.runtime import pinned_memory
from optdb.runtime.context import Context
from optdb.runtime.context_options import TransferSizes

__all__ = ["use_separate_memory"]

_SIZES = TransferSizes(least=1, piece=64)


def use_separate_memory(context: Context) -> None:
    """Treat a device as one that does not share the host's memory; call this before anything is computed on the device.

    Arrays of any size are then copied to and from the device through pinned memory, most of them in several pieces,
    although direct access would be faster.
    """
    context.profile = replace(context.profile, shares_host_memory=False)
    context.options = replace(context.options, transfer_sizes=_SIZES)
    context.kept[pinned_memory.__name__] = pinned_memory.PinnedMemory(context.queue, _SIZES.piece)
