"""Tunes matrix products on a device, and prints what that gained."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.console import Console
from rich.table import Table


def report(device: str, dtypes: Sequence[str], forget: bool = False, library: bool = True) -> int:
    """Tune a device for some dtypes, or forget what was found, and return the process's exit status.

    Parameters
    ----------
    device : str
        Which one, as the flag optdb.device says it.
    dtypes : sequence of str
        Of matrices; those that the device lacks are left out.
    forget : bool
        Remove what was found before, and measure nothing.
    library : bool
        Measure CLBlast, too, where it is installed.

    Raises
    ------
    optdb.runtime.errors.DeviceError
        If there is no such device, or it does not work.
    """
    from optdb.host.bootstrap import import_host

    import_host()
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
            continue
        Console().print(_table(f"{dtype} on {context.profile.name}", tune.tune(context, dtype, library)))
        print("kept in", tuning.path_of(key))
    return 0


def _table(title: str, results: Sequence[Any]) -> Table:
    table = Table("products", "best", title=title, title_justify="left")
    for column in ("GFLOP/s", "default", "GFLOP/s", "CLBlast"):
        table.add_column(column, justify="right")
    for found in results:
        names = [block.name.partition("_")[2] for block in (found.block, found.default)]
        theirs = f"{found.library_speed:.1f}" if found.library_speed else "-"
        table.add_row(found.name, names[0], f"{found.speed:.1f}", names[1], f"{found.default_speed:.1f}", theirs)
    return table
