"""What ``python -m optdb devices`` prints: each OpenCL device, and whether it works."""

from __future__ import annotations

from rich.console import Console
from rich.markup import escape
from rich.table import Table


def report() -> int:
    """Try all devices, print a table, and return the process's exit status.

    Returns
    -------
    int
        0 where a device works, 1 otherwise.
    """
    from optdb.runtime.errors import DeviceError

    try:
        from optdb.runtime import devices

        rows = devices.list_devices()
        if rows:
            Console().print(_table(rows))
        best = devices.find("opencl")
    except DeviceError as error:
        # Whatever it is, its message is what the user came for.
        print(error)
        return 1
    print("optdb.device=opencl takes", best.name.strip())
    return 0


def _table(rows: list) -> Table:
    table = Table("optdb.device", "kind", title="optdb: OpenCL devices", title_justify="left")
    table.add_column("device", overflow="fold")
    table.add_column("platform", overflow="fold")
    table.add_column("units", justify="right")
    table.add_column("memory", justify="right")
    table.add_column("state", overflow="fold")
    for row in rows:
        state = "[green]works[/]" if row.works else f"[red]fails[/]: {escape(row.trouble)}"
        memory = f"{row.memory / 2**30:.1f} GiB"
        names = ", ".join(filter(None, [row.spec, row.short_name]))
        table.add_row(names, row.kind, escape(row.name), escape(row.platform), str(row.units), memory, state)
    return table
