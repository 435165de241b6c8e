"""Tunes matrix products on a device, and prints the speed before and after."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

from rich.console import Console
from rich.table import Table


def report(device: str, dtypes: Sequence[str], forget: bool = False, library: bool = True) -> int:
    """Tune matrix products for some dtypes, or remove earlier results, and return the process's exit status.

    Parameters
    ----------
    device : str
        The device, as the flag optdb.device names it.
    dtypes : sequence of str
        The dtypes of the matrices; those that the device does not support are skipped.
    forget : bool
        Remove earlier results, and measure nothing.
    library : bool
        Measure CLBlast, too, where it is installed.

    Raises
    ------
    optdb.runtime.errors.DeviceError
        If there is no such device, or it does not work.
    """
    from optdb.cli import kernels

    kernels.folder()  # results are kept where functions look for them
    from optdb.codegen.gemm import blocks, tune
    from optdb.runtime import tuning
    from optdb.runtime.context import Context

    context = Context(device)
    for dtype in dtypes:
        reason = context.unsupported_reason(dtype)
        if reason is not None:
            print(f"{dtype}: {reason}")
            continue
        key = blocks.key_of(context, dtype)
        if forget:
            tuning.forget(key)
            print(f"{dtype}: the defaults of {context.profile.name} are in force")
            continue
        print(f"optdb: measuring products of {dtype}, for up to a minute", file=sys.stderr)
        Console().print(_table(f"{dtype} on {context.profile.name}", tune.tune(context, dtype, library)))
        print("kept in", tuning.path_of(key))
    return 0


def _table(title: str, results: Sequence[Any]) -> Table:
    table = Table("products", "best", title=title, title_justify="left")
    for column in ("GFLOP/s", "default", "GFLOP/s", "CLBlast"):
        table.add_column(column, justify="right")
    for result in results:
        names = [block.name.partition("_")[2] for block in (result.block, result.default)]
        library_speed = f"{result.library_speed:.1f}" if result.library_speed else "-"
        table.add_row(
            result.name, names[0], f"{result.speed:.1f}", names[1], f"{result.default_speed:.1f}", library_speed
        )
    return table
