"""``scipy.signal.sigtools``, whose module SciPy made private: the function of it that Theano imports."""

from optdb.host.theano.importing.compat.modules._later import later

_convolve2d = later("scipy.signal._sigtools", "_convolve2d")
