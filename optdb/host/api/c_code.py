"""How host nodes run: in C code or, without a C compiler, in NumPy on whole arrays."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from optdb.host.theano.clinker.plug import install, uninstall
from optdb.host.theano.clinker.progress import progress
from optdb.host.theano.vectorized.plug import install as compute_whole_arrays
from optdb.host.theano.vectorized.plug import uninstall as compute_by_perform

if TYPE_CHECKING:
    from optdb.host.theano.clinker.tiers.status import Tier, tier, wait


def __getattr__(name: str) -> Any:
    # Importing `tiers.status` imports much of Theano, which may be in the middle of its own import.
    if name not in ("Tier", "tier", "wait"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from optdb.host.theano.clinker.tiers import status

    return getattr(status, name)
