"""What ``python -m optdb devices`` prints: each OpenCL device, and whether it works."""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING

from rich.console import Console
from rich.markup import escape
from rich.table import Table

if TYPE_CHECKING:
    from optdb.runtime.devices import DeviceInfo


def report(profiles: bool = False) -> int:
    """Try all devices, print a table, and return the process's exit status.

    Parameters
    ----------
    profiles : bool
        Whether to print each device's profile, too.

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
        for row in rows if profiles else ():
            Console().print(_profile_table(row))
        best = devices.find("opencl")
    except DeviceError as error:
        # The message names the cause and the cure.
        print(error)
        return 1
    print("optdb.device=opencl takes", best.name.strip())
    return 0


def _profile_table(row: DeviceInfo) -> Table:
    """Return a table of the fields of a device's profile, and of its quirks with their reasons."""
    profile = row.profile
    table = Table("property", title=f"{row.spec}: {profile.name}", title_justify="left")
    table.add_column("value", overflow="fold")
    for field in fields(profile):
        value = getattr(profile, field.name)
        if field.name == "driver":
            value = f"{profile.platform_name}, version {value.version.strip()}"
        if field.name != "quirks":
            table.add_row(field.name, escape(str(value)))
    for name, reason in profile.reasons().items():
        table.add_row(f"quirks.{name}", escape(reason))
    return table


def _table(rows: list[DeviceInfo]) -> Table:
    table = Table("optdb.device", "kind", title="optdb: OpenCL devices", title_justify="left")
    table.add_column("device", overflow="fold")
    table.add_column("platform", overflow="fold")
    table.add_column("units", justify="right")
    table.add_column("memory", justify="right")
    table.add_column("state", overflow="fold")
    for row in rows:
        state = "[green]works[/]" if row.works else f"[red]fails[/]: {escape(row.unsupported_reason)}"
        memory = f"{row.memory / 2**30:.1f} GiB"
        names = ", ".join(filter(None, [row.spec, row.short_name]))
        table.add_row(names, row.kind, escape(row.name), escape(row.platform), str(row.units), memory, state)
    return table
