"""Prints the attributes of Theano and PyTensor that optdb replaces, for ``python -m optdb doctor --patches``."""

from __future__ import annotations

from types import ModuleType
from typing import TYPE_CHECKING

from rich.console import Console

from optdb.cli.pytensor_checks import is_installed
from optdb.cli.terminal import print_text, verbatim
from optdb.host.theano.importing import support

if TYPE_CHECKING:
    from optdb.host.api.patching import Patch, PatchGroup

#: If more attributes than this are replaced for one reason, only two of them are named. For example, the comparison of
#: ops is replaced in about a thousand op classes.
_MOST_NAMES = 12


def report_patches() -> int:
    """For each group of patches, print the patches, their reasons, when they apply, and how to undo them. Return 0.

    The engine works with one host per process, so PyTensor's patches are printed only if Theano is not installed.
    """
    if support.found("Theano") is None and is_installed():
        _turn_on_for_pytensor()
    else:
        _turn_on_for_theano()
    from optdb.host.api.patching import groups  # this import binds Theano as the host if no host is bound yet

    console = Console()
    for group in groups():
        if group.patches:
            _print(console, group)
    return 0


def _turn_on_for_theano() -> None:
    """Import the modules that have patches, and install the patches that are normally installed on first use."""
    import optdb
    import optdb.cache
    from optdb.host.theano.functions import sharing

    if support.found("pyopencl") is not None:
        import optdb.opencl

        sharing.watch()
    optdb.enable()
    optdb.cache.install()


def _turn_on_for_pytensor() -> None:
    """Import the modules that have patches for PyTensor, and install the patches."""
    import optdb.pytensor

    optdb.pytensor.enable()


def _print(console: Console, group: PatchGroup) -> None:
    console.print(group.title, style="bold", highlight=False)
    print_text(console, f"in force {group.in_force}")
    print_text(console, f"undone by {group.undo}")
    names: dict[str, list[str]] = {}
    for patch in group.patches:
        names.setdefault(patch.reason, []).append(_name(patch))
    for reason, replaced in names.items():
        shown = replaced if len(replaced) <= _MOST_NAMES else [*replaced[:2], f"and {len(replaced) - 2} more"]
        print_text(console, f"{verbatim(*shown)}\n{reason}", head=_REASON, indent=len(_REASON))
    console.print()


_REASON = " " * 8


def _name(patch: Patch) -> str:
    owner = patch.owner
    if isinstance(owner, ModuleType):
        return f"{owner.__name__}.{patch.name}"
    return f"{getattr(owner, '__qualname__', type(owner).__qualname__)}.{patch.name}"
