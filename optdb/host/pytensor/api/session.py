"""The patches that are installed while optdb rewrites PyTensor's graphs."""

from __future__ import annotations

from optdb.host.api.patching import Patch
from optdb.host.pytensor import patches


def install_during_sessions(*added: Patch) -> None:
    """Add patches; each module that defines patches calls this function on import."""
    patches.patches.extend(added)
