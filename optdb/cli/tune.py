"""Tunes matrix products on a device, including products on its tensor cores, and prints their speed."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table

if TYPE_CHECKING:
    from optdb.runtime.context import Context


def report(device: str, dtypes: Sequence[str], forget: bool = False, library: bool = True) -> int:
    """Tune matrix products for the given dtypes, or `forget` earlier results; return the exit status.

    Dtypes that the device does not support are skipped. With `library`, CLBlast is also measured if it is installed.
    """
    from optdb.cli import kernels

    kernels.folder()  # select the folder in which compiled functions look for results
    from optdb.codegen.gemm import tune, tuning_table
    from optdb.codegen.gemm.blocks import table_class
    from optdb.codegen.gemm.problem import CLASSES
    from optdb.runtime import tuning
    from optdb.runtime.context import Context

    context = Context(device)
    path = tuning.path_of(tuning_table.key_of(context))
    for dtype in dtypes:
        reason = context.unsupported_reason(dtype)
        if reason is not None:
            print(f"{dtype}: {reason}")
            continue
        if forget:
            tuning_table.record(context, {table_class(dtype, name): {} for name in CLASSES})
            print(f"{dtype}: reset to the defaults of {context.profile.name}")
            continue
        print(f"optdb: measuring products of {dtype}, for up to a minute", file=sys.stderr)
        Console().print(_table(f"{dtype} on {context.profile.name}", tune.tune(context, dtype, library)))
        print("kept in", path)
    if "float32" in dtypes and context.profile.has_tensor_cores:
        _tune_tensor_cores(context, forget)
    return 0


def _tune_tensor_cores(context: Context, forget: bool) -> None:
    """Measure products on tensor cores, or remove earlier results."""
    from optdb.codegen.gemm import tensor_cores, tune, tuning_table, warpgroups

    if forget:
        by_warpgroups = map(warpgroups.table_class, warpgroups.DEFAULTS)
        tuning_table.record(context, {name: {} for name in (tensor_cores.TILES, *by_warpgroups)})
        return
    print("optdb: measuring float32 products on tensor cores, for up to a minute", file=sys.stderr)
    rates = tune.tune_tensor_cores(context)
    if not rates:
        print("no tile shape works on the tensor cores of this device: the defaults are kept")
        return
    table = Table("tiles", title=f"TF32 on {context.profile.name}, TFLOP/s of a unit", title_justify="left")
    table.add_column("with 1, 2, ... tiles per compute unit", justify="right")
    for block, of_groups in rates.items():
        table.add_row(block.name.partition("_")[2], "  ".join(f"{rate:.2f}" for rate in of_groups))
    Console().print(table)
    for arithmetic in warpgroups.DEFAULTS:
        times = tune.tune_warpgroups(context, arithmetic)
        if times:
            table = Table("tiles", title=f"{arithmetic} by warpgroups on {context.profile.name}", title_justify="left")
            table.add_column("a stage, µs", justify="right")
            table.add_column("a tile without its stages, µs", justify="right")
            for tile, (stage, of_tile) in times.items():
                table.add_row(tile.name.partition("_")[2], f"{1e6 * stage:.3f}", f"{1e6 * of_tile:.2f}")
            Console().print(table)
        elif context.profile.has_warpgroup_products:
            print(f"{arithmetic} by warpgroups: no tile could be measured, so the defaults are kept")


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
