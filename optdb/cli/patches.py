"""Prints the attributes of Theano that optdb replaces, for ``python -m optdb doctor --patches``."""

from __future__ import annotations

import importlib.util
from types import ModuleType

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from optdb.host.api.patching import Patch, PatchGroup, groups


def report_patches() -> int:
    """Print each group of patches with its reasons, when it is in force, and what undoes it; return 0."""
    _turn_everything_on()
    console = Console()
    for group in groups():
        if group.patches:
            console.print(_table(group))
            console.print(f"[dim]in force[/]  {escape(group.in_force)}\n[dim]undone by[/] {escape(group.undo)}\n")
    return 0


def _turn_everything_on() -> None:
    """Import the modules that have patches, and install those patches that are otherwise made on first use."""
    import optdb
    import optdb.cache
    from optdb.host.theano.functions import sharing

    if importlib.util.find_spec("pyopencl") is not None:
        import optdb.opencl

        sharing.watch()
    optdb.enable()
    optdb.cache.install()


def _table(group: PatchGroup) -> Table:
    table = Table("replaced", "why", title=escape(group.title), title_justify="left", title_style="bold")
    # Users search for these names: long ones are folded, never truncated.
    table.columns[0].overflow = table.columns[1].overflow = "fold"
    rows: dict[str, list[str]] = {}
    for patch in group.patches:
        rows.setdefault(patch.reason, []).append(_name(patch))
    for reason, names in rows.items():
        shown = names if len(names) <= _MOST_NAMES else [*names[:2], f"and {len(names) - 2} more"]
        table.add_row(escape("\n".join(shown)), escape(reason))
    return table


#: The most names in a row: equality is replaced for some thousand classes of ops.
_MOST_NAMES = 12


def _name(patch: Patch) -> str:
    owner = patch.owner
    if isinstance(owner, ModuleType):
        return f"{owner.__name__}.{patch.name}"
    return f"{getattr(owner, '__qualname__', type(owner).__qualname__)}.{patch.name}"
