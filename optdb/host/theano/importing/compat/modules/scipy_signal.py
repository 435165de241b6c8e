"""The functions that Theano imports from ``scipy.signal.signaltools`` and ``sigtools``, which SciPy made private."""

from optdb.host.theano.importing.compat.modules._later import later

SIGNALTOOLS = "scipy.signal._signaltools"

_valfrommode = later(SIGNALTOOLS, "_valfrommode")
_bvalfromboundary = later(SIGNALTOOLS, "_bvalfromboundary")
convolve = later(SIGNALTOOLS, "convolve")
_convolve2d = later("scipy.signal._sigtools", "_convolve2d")
