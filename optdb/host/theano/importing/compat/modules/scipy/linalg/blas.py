"""``scipy.linalg.blas``: the functions that Theano uses without C code."""

import sys

from optdb.host.theano.importing.compat.modules._falling_back import fall_back_to
from optdb.host.theano.importing.compat.modules._later import later

MODULE = "scipy.linalg.blas"

sgemv, dgemv, cgemv, zgemv = (later(MODULE, f"{letter}gemv") for letter in "sdcz")
sger, dger, cgeru, zgeru = (later(MODULE, name) for name in ("sger", "dger", "cgeru", "zgeru"))

#: Theano first looks for the functions here: in SciPy of 2012 this was a separate module.
fblas = sys.modules[__name__]

__getattr__, __dir__ = fall_back_to(MODULE, globals())
