"""Tunes matrix products on a device, including those on tensor cores, and prints their speed."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table

if TYPE_CHECKING:
    from optdb.runtime.context import Context


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
        Also measure CLBlast if it is installed.

    Raises
    ------
    optdb.runtime.errors.DeviceError
        If the device does not exist or does not work.
    """
    from optdb.cli import kernels

    kernels.folder()  # store results where functions look for them
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
    if "float32" in dtypes and context.profile.has_tensor_cores:
        _tune_tensor_cores(context, forget)
    return 0


def _tune_tensor_cores(context: Context, forget: bool) -> None:
    """Measure products on tensor cores, or remove earlier results."""
    from optdb.codegen.gemm import packed_speeds, tensor_rates
    from optdb.runtime import tuning

    key = tensor_rates.key_of(context)
    if forget:
        for one in (key, *(packed_speeds.key_of(context, arithmetic) for arithmetic in packed_speeds.DEFAULTS)):
            tuning.forget(one)
        return
    print("optdb: measuring products of float32 by tensor cores, for up to a minute", file=sys.stderr)
    rates = tensor_rates.measure(context)
    if not rates:
        print("no shape of tiles computes products by tensor cores here: the defaults stay")
        return
    table = Table("tiles", title=f"TF32 on {context.profile.name}, TFLOP/s of a unit", title_justify="left")
    table.add_column("with 1, 2, ... tiles at a time", justify="right")
    for block, of_groups in rates.items():
        table.add_row(block.name.partition("_")[2], "  ".join(f"{rate:.2f}" for rate in of_groups))
    Console().print(table)
    print("kept in", tuning.path_of(key))
    _tune_packed_products(context)


def _tune_packed_products(context: Context) -> None:
    """Measure products of packed matrices if the device has the instructions."""
    from optdb.codegen.gemm import packed_speeds
    from optdb.runtime import tuning

    for arithmetic in packed_speeds.DEFAULTS:
        speed = packed_speeds.measure(context, arithmetic)
        if speed is not None:
            print(
                f"packed matrices of {arithmetic}: {speed.multiplying:.2f} TFLOP/s of a unit, packed at "
                f"{speed.packing:.0f} GB/s; kept in {tuning.path_of(packed_speeds.key_of(context, arithmetic))}"
            )
        elif context.profile.has_warpgroup_products:
            print(f"packed matrices of {arithmetic}: nothing to go by was measured, so the defaults stay")


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
