"""``theano.tensor.signal`` with the submodule ``downsample``, which Theano 1.0 removed."""

# ruff: noqa: F401 (Lasagne imports them)

from theano.tensor import signal
from theano.tensor.signal import pool

from optdb.host.theano.importing.compat.modules._falling_back import fall_back_to
from optdb.host.theano.importing.compat.modules.libraries import theano_downsample as downsample

__getattr__, __dir__ = fall_back_to(signal, globals())
