"""PyTensor's side of the host interface; importing it makes PyTensor the host of this process."""

from optdb.host import bind

bind("pytensor")
