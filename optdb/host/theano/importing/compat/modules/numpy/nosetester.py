"""``numpy.testing.nosetester``, which NumPy 1.25 removed: without it Theano has no ``theano.test``."""

# ruff: noqa: F401 (Theano imports it)

import numpy

# Querying NumPy itself would import all of numpy.testing only to find nothing.
if numpy.lib.NumpyVersion(numpy.__version__) >= "1.25.0":
    raise ModuleNotFoundError("No module named 'numpy.testing.nosetester'", name="numpy.testing.nosetester")

from numpy.testing.nosetester import NoseTester
