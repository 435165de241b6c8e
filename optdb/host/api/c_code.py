"""C code of nodes that stay on the host: how it is built, its progress bar, and its progress for a function."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from optdb.host.theano.clinker.plug import install, uninstall
from optdb.host.theano.clinker.progress import progress

if TYPE_CHECKING:
    from optdb.host.theano.clinker.tiers.progress import Tier, tier, wait

__all__ = ["Tier", "install", "progress", "tier", "uninstall", "wait"]


def __getattr__(name: str) -> Any:
    # These import much of Theano, which may be in the middle of its own import.
    if name not in ("Tier", "tier", "wait"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from optdb.host.theano.clinker.tiers import progress as tiers

    return getattr(tiers, name)
