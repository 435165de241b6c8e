"""``numpy.core``, which NumPy 2 made private."""

import numpy

from optdb.host.theano.importing.compat.modules._falling_back import fall_back_to

if numpy.lib.NumpyVersion(numpy.__version__) < "2.0.0":
    import numpy.core as original
else:
    import numpy._core as original  # type: ignore[no-redef]  # only one of the two exists

__getattr__, __dir__ = fall_back_to(original, globals())
