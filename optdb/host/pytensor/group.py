"""The group of patches of PyTensor while optdb rewrites its graphs: `optdb.pytensor.enable` installs it."""

from __future__ import annotations

from optdb.host.api.patching import PatchGroup

__all__ = ["patches"]

patches = PatchGroup("Rewriting of PyTensor's graphs", "from optdb.pytensor.enable() on", "optdb.pytensor.disable()")
