"""Lets optdb treat a device as one with other kernels, other memory or other batches of commands."""

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

#: The kind of device for which kernels are generated: the device's own kind or, on any device, one of three kinds of
#: GPUs. For "copying gpu", kernels copy tiles asynchronously, and use one work item for each element of short arrays.
#: For "warpgroup gpu", kernels use warpgroup instructions, unless a product requires the highest precision. In both
#: cases, the instructions are emulated.
KERNELS = ("own", "gpu", "copying gpu", "warpgroup gpu")
#: For each kind of kernels, the options that make optdb use this kind even for products of small matrices.
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
#: The compute capability of the first GPUs that have asynchronous copies.
_CAN_COPY = (8, 0)
#: The number of work items that a compute unit of such a GPU starts at once.
_ITEMS_AT_ONCE = 256
#: How the device's memory is treated: as it is, or as separate from the host's memory, as on most GPUs.
MEMORIES = ("own", "separate")


def _in_turn(name: str, values: Sequence[str], text: str) -> Callable[[Any], Any]:
    """Return a command-line option that accepts several values; processes use these values in turn."""
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
    """Replace the profile and the options of this process's device; call this before anything is compiled."""
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
    """Replace some options of this process's device; call this before anything is compiled for it."""
    context = get_context(context_of(device))
    context.options = replace(context.options, **options)


def use_smallest_batches(device: str = "auto", keeps_gil: bool = False) -> None:
    """Make each list of commands that a device repeats a batch, even a list of a single call.

    With `keeps_gil`, all batches that only enqueue commands keep the GIL, not only the short ones.
    """
    loop_library()
    replace_options(device, batch_thresholds=BatchThresholds(times=1, calls=1 << 20 if keeps_gil else 1))


def context_like(device: str = "auto") -> Context:
    """Return a new context for a loaded file, with this process's profile and options of the device."""
    known = get_context(context_of(device))
    context = Context(known.spec, known.options)
    context.profile = known.profile
    return context
