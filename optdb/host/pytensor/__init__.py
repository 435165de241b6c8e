"""The host interface for PyTensor; importing this package makes PyTensor the host of this process."""

from optdb.host import bind

bind("pytensor")

from optdb.host.api.patching import PatchGroup

patches = PatchGroup("Rewriting of PyTensor's graphs", "from optdb.pytensor.enable() on", "optdb.pytensor.disable()")
