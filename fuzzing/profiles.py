"""The device profile and options of a process: its kernels, its memory, and its batches."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import click

from emulation import EMULATED
from fuzzing.memory import use_separate_memory
from optdb.opencl import get_context
from optdb.opencl.registry import context_of
from optdb.runtime.context import Context
from optdb.runtime.context_options import BatchThresholds
from optdb.runtime.driver_batches import loop_library

__all__ = [
    "KERNELS",
    "MEMORIES",
    "context_like",
    "kernels_option",
    "memory_option",
    "replace_options",
    "replace_profile",
    "use_smallest_batches",
]

#: The kind of device that kernels are written for: the device's own, or, on any device, a GPU. The copying GPU copies
#: tiles asynchronously, and has an item for each element of short arrays. The warpgroup GPU uses warpgroup instructions
#: for products with less than the highest precision. Both emulate the instructions of such a GPU.
KERNELS = ("own", "gpu", "copying gpu", "warpgroup gpu")
#: For each kind of kernels, the options with which all products of small matrices use these kernels.
_OPTIONS: dict[str, dict[str, Any]] = {
    "copying gpu": {
        **{"instructions": EMULATED, "quad_tiles": "none"},
        "copied_tiles": "all",
    },
    "warpgroup gpu": {
        **{"instructions": EMULATED, "quad_tiles": "none"},
        **{"warpgroup_tiles": "all", "warpgroup_tile": (64, 64, 32, 2, 1)},
    },
}
#: The first compute capability of GPUs with asynchronous copies.
_CAN_COPY = (8, 0)
#: The `items_at_once` of a GPU's unit.
_ITEMS_AT_ONCE = 256
#: The device's memory: its own kind or, on any device, one that is separate from the host's, as on most GPUs.
MEMORIES = ("own", "separate")


def _in_turn(name: str, values: Sequence[str], text: str) -> Callable[[Any], Any]:
    """Return a command-line option whose values are assigned to processes in turn."""
    return click.option(
        f"--{name}",
        multiple=True,
        type=click.Choice(values),
        default=values,
        show_default=True,
        help=f"{text}: processes take turns.",
    )


kernels_option = _in_turn("kernels", KERNELS, "Kind of device for which kernels are generated")
memory_option = _in_turn("memory", MEMORIES, "Whether the device is treated as one with its own memory")


def replace_profile(device: str = "auto", kernels: str = "own", memory: str = "own") -> None:
    """Replace the profile of the device that this process computes on, and its options, before it compiles."""
    if (kernels, memory) == ("own", "own"):
        return
    context = get_context(context_of(device))
    if kernels != "own":
        context.profile = context.profile.as_kind("gpu")
    if kernels == "copying gpu":
        quirks = replace(context.profile.quirks, takes_ptx=True)
        context.profile = replace(
            context.profile, quirks=quirks, compute_capability=_CAN_COPY, items_at_once=_ITEMS_AT_ONCE
        )
    if kernels in _OPTIONS:
        replace_options(device, **_OPTIONS[kernels])
    if memory == "separate":
        use_separate_memory(context)


def replace_options(device: str = "auto", **options: Any) -> None:
    """Replace some options of the device that this process computes on, before anything is compiled for it."""
    context = get_context(context_of(device))
    context.options = replace(context.options, **options)


def use_smallest_batches(device: str = "auto", keeps_gil: bool = False) -> None:
    """Batch each list of commands of a device when it is enqueued a second time, even if the list has a single call.

    With `keeps_gil`, all batches that only enqueue commands keep the GIL, as short ones do.
    """
    loop_library()
    replace_options(device, batch_thresholds=BatchThresholds(times=1, calls=1 << 20 if keeps_gil else 1))


def context_like(device: str = "auto") -> Context:
    """Return a new context of a device for a loaded file, with the profile and options of this process."""
    known = get_context(context_of(device))
    context = Context(known.spec, known.options)
    context.profile = known.profile
    return context
