"""PyTensor's side of the host interface; importing it makes PyTensor the host of this process."""

from optdb.host import bind

bind("pytensor")

from optdb.host.api.patching import PatchGroup

#: The patches that are installed in PyTensor while optdb rewrites its graphs.
patches = PatchGroup("Rewriting of PyTensor's graphs", "from optdb.pytensor.enable() on", "optdb.pytensor.disable()")
