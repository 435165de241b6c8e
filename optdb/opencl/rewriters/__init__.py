"""Rewriters for whole device graphs, which register themselves with Theano.

`hoisting` and `stacking` run before fusion, `epilogues` and `placing` after it, and `next_values` after all in-place
rewriters.
"""

from optdb.opencl.rewriters import epilogues, hoisting, inplace, next_values, placing, stacking

__all__ = ["epilogues", "hoisting", "inplace", "next_values", "placing", "stacking"]
