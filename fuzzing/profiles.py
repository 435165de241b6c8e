"""The device profile of a process: whose kernels it runs, and whose memory its device has."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import click

from optdb.codegen.gemm import copied, quad_tiles, warpgroups
from optdb.opencl import get_context
from optdb.opencl.registry import context_of
from optdb.runtime.context import Context

__all__ = ["KERNELS", "MEMORIES", "context_like", "kernels_option", "memory_option", "replace_profile"]

#: For which device kernels are written: its own kind, or, on any device, a GPU. One copies tiles in the background, and
#: has an item at once for each element of short arrays; another one packs matrices where products need not be of the
#: highest precision. Both have functions that do as the instructions of such a GPU do.
KERNELS = ("own", "gpu", "copying gpu", "packing gpu")
#: The first compute capability of GPUs that copy in the background.
_CAN_COPY = (8, 0)
#: Those of a unit of a GPU.
_ITEMS_AT_ONCE = 256
#: Which memory the device has: its own kind, or, on any device, one that is not the host's, as most GPUs have.
MEMORIES = ("own", "separate")


def _in_turn(name: str, values: Sequence[str], text: str) -> Callable[[Any], Any]:
    """Return the option of a command whose processes take turns with its values."""
    return click.option(
        f"--{name}",
        multiple=True,
        type=click.Choice(values),
        default=values,
        show_default=True,
        help=f"{text}: processes take turns.",
    )


kernels_option = _in_turn("kernels", KERNELS, "For which device kernels are written")
memory_option = _in_turn("memory", MEMORIES, "Whether the device's memory is said to be its own")


def replace_profile(device: str = "auto", kernels: str = "own", memory: str = "own") -> None:
    """Replace the profile of the device that this process computes on, before anything is compiled for it.

    Parameters
    ----------
    device : str
        The device, as `optdb.mode` names it.
    kernels : str
        One of `KERNELS`.
    memory : str
        One of `MEMORIES`.
    """
    if (kernels, memory) == ("own", "own"):
        return
    context = get_context(context_of(device))
    if kernels != "own":
        context.profile = context.profile.as_kind("gpu")
    if kernels == "copying gpu":
        quad_tiles.take_none()
        copied.emulate()
        quirks = replace(context.profile.quirks, takes_ptx=True)
        context.profile = replace(
            context.profile, quirks=quirks, compute_capability=_CAN_COPY, items_at_once=_ITEMS_AT_ONCE
        )
    if kernels == "packing gpu":
        quad_tiles.take_none()
        warpgroups.emulate()
    if memory == "separate":
        context.profile = replace(context.profile, shares_host_memory=False)


def context_like(device: str = "auto") -> Context:
    """Return a new context of a device, as a file has that is loaded, with the profile that this process gave it."""
    known = get_context(context_of(device))
    context = Context(known.spec)
    context.profile = known.profile
    return context
