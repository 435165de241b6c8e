"""What is replaced in PyTensor while its rewriting is optdb's."""

from __future__ import annotations

from optdb.host.api.patching import Patch
from optdb.host.pytensor.group import patches

__all__ = ["install_during_sessions"]


def install_during_sessions(*added: Patch) -> None:
    """Add patches, which is called while the modules that define them are imported."""
    patches.patches.extend(added)
