"""``numpy.testing.nosetester``, which ``theano.test`` needs and NumPy 1.25 removed."""

# ruff: noqa: F401 (Theano imports it)

import numpy

# Searching NumPy for this module would import all of numpy.testing, so check NumPy's version instead.
if numpy.lib.NumpyVersion(numpy.__version__) >= "1.25.0":
    raise ModuleNotFoundError("No module named 'numpy.testing.nosetester'", name="numpy.testing.nosetester")

from numpy.testing.nosetester import NoseTester
