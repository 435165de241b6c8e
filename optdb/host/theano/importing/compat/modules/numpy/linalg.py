"""``numpy.linalg``, which also replaces its former submodule ``linalg``."""

import sys

import numpy.linalg

from optdb.host.theano.importing.compat.modules._falling_back import fall_back_to

linalg = sys.modules[__name__]

__getattr__, __dir__ = fall_back_to(numpy.linalg, globals())
