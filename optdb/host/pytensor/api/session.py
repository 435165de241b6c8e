"""The patches that are installed while optdb rewrites PyTensor's graphs."""

from __future__ import annotations

from optdb.host.api.patching import Patch
from optdb.host.pytensor import patches


def install_during_sessions(*added: Patch) -> None:
    """Add patches; the modules that define them call this on import."""
    patches.patches.extend(added)
