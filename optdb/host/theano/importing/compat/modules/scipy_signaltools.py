"""``scipy.signal.signaltools``, whose module SciPy made private: the functions of it that Theano imports."""

from optdb.host.theano.importing.compat.modules._later import later

MODULE = "scipy.signal._signaltools"

_valfrommode = later(MODULE, "_valfrommode")
_bvalfromboundary = later(MODULE, "_bvalfromboundary")
convolve = later(MODULE, "convolve")
