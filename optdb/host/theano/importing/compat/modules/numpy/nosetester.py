"""``numpy.testing.nosetester``, which ``theano.test`` needs and NumPy 1.25 removed."""

# ruff: noqa: F401 (Theano imports it)

import numpy

# Do not look in NumPy, which would import all of numpy.testing.
if numpy.lib.NumpyVersion(numpy.__version__) >= "1.25.0":
    raise ModuleNotFoundError("No module named 'numpy.testing.nosetester'", name="numpy.testing.nosetester")

from numpy.testing.nosetester import NoseTester
