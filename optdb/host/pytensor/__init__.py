"""PyTensor's side of the host's vocabulary; the import makes PyTensor the host of this process."""

from optdb.host import bind

bind("pytensor")
