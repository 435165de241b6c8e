"""``scipy.signal.sigtools``, whose module SciPy made private."""

import scipy.signal._sigtools

from optdb.host.compat.modules._falling_back import fall_back_to

__getattr__, __dir__ = fall_back_to(scipy.signal._sigtools, globals())
