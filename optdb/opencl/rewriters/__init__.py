"""Rewriters for whole device graphs, which register themselves with Theano.

`hoisting` and `stacking` run before fusion, `epilogues` and `placing` run after fusion, and `inplace` runs last.
"""

from optdb.opencl.rewriters import epilogues, hoisting, inplace, placing, stacking

__all__ = ["epilogues", "hoisting", "inplace", "placing", "stacking"]
