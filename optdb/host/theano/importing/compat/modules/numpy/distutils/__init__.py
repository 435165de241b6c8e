"""The parts of ``numpy.distutils`` that Theano uses: NumPy has none from Python 3.12 on."""

from optdb.host.theano.importing.compat.modules.numpy.distutils import __config__, misc_util, system_info

__all__ = ["__config__", "misc_util", "system_info"]
