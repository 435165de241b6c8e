"""Rewriters for whole device graphs, which register themselves with Theano.

`hoisting` and `stacking` run before fusion, `epilogues` and `placing` after it, and `inplace` last.
"""

from optdb.opencl.rewriters import epilogues, hoisting, inplace, placing, stacking

__all__ = ["epilogues", "hoisting", "inplace", "placing", "stacking"]
