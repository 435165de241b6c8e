"""The patches that are installed in PyTensor while optdb rewrites its graphs."""

from __future__ import annotations

from optdb.host.api.patching import Patch
from optdb.host.pytensor import patches


def install_during_sessions(*added: Patch) -> None:
    """Add patches; called when the modules that define them are imported."""
    patches.patches.extend(added)
