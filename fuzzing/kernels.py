"""For which kind of device the kernels of a process are written."""

from __future__ import annotations

import click

from optdb.opencl import get_context
from optdb.opencl.registry import context_of

__all__ = ["KERNELS", "kernels_option", "write_for"]

#: The device's own kind, or, on any device, a GPU.
KERNELS = ("own", "gpu")

#: The option of a command whose processes take turns with them.
kernels_option = click.option(
    "--kernels",
    multiple=True,
    type=click.Choice(KERNELS),
    default=KERNELS,
    show_default=True,
    help="For which kind of device kernels are written: processes take turns.",
)


def write_for(kernels: str, device: str = "auto") -> None:
    """Write all kernels of this process for a kind of device.

    Parameters
    ----------
    kernels : str
        One of `KERNELS`.
    device : str
        The device that runs them, as `optdb.mode` names it.
    """
    if kernels == "own":
        return
    context = get_context(context_of(device))
    context.profile = context.profile.as_kind(kernels)
