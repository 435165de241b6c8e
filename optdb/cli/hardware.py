"""The output of ``python -m optdb devices``: each OpenCL device, and whether it works."""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING

from rich.console import Console
from rich.markup import escape
from rich.table import Table

if TYPE_CHECKING:
    from optdb.runtime.devices import DeviceInfo


def report(profiles: bool = False) -> int:
    """Try all devices; print a table and, optionally, the devices' profiles.

    Return the exit status: 0 if a device works.
    """
    from optdb.runtime.errors import DeviceError

    try:
        from optdb.runtime import devices

        rows = devices.list_devices()
        if rows:
            Console().print(devices.DeviceList(rows))
        for row in rows if profiles else ():
            Console().print(_profile_table(row))
        best = devices.find("opencl")
    except DeviceError as error:
        # The message names the cause and the fix.
        print(error)
        return 1
    print("optdb.device=opencl selects", best.name.strip())
    return 0


def _profile_table(row: DeviceInfo) -> Table:
    """Return a table with a device's profile, its quirks, and the reason for each quirk."""
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
