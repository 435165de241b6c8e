"""``scipy.linalg``, which is imported when one of its functions is called."""

from optdb.host.theano.importing.compat.modules._falling_back import fall_back_to

__getattr__, __dir__ = fall_back_to("scipy.linalg", globals(), submodules=["blas"])
