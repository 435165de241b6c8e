"""Contexts that are treated as those of devices with their own memory, for both hosts' fuzzers."""

from __future__ import annotations

from dataclasses import replace

from optdb.runtime import pinned_memory
from optdb.runtime.context import Context
from optdb.runtime.context_options import TransferSizes

__all__ = ["use_separate_memory"]

_SIZES = TransferSizes(least=1, piece=64)


def use_separate_memory(context: Context) -> None:
    """Treat a device as one that does not share the host's memory, before anything is computed on it.

    Arrays of any size are then copied to and from the device through pinned memory, most of them in several pieces,
    although this takes longer.
    """
    context.profile = replace(context.profile, shares_host_memory=False)
    context.options = replace(context.options, transfer_sizes=_SIZES)
    context.kept[pinned_memory.__name__] = pinned_memory.PinnedMemory(context.queue, _SIZES.piece)
