"""Rewriters for whole device graphs, each of which registers itself with Theano.

Their positions give the order: `hoisting` and `stacking` run before fusion; `epilogues`, `placing` and `layouts` run
after it; `inplace` runs with Theano's in-place rewriters.
"""

from optdb.opencl.rewriters import epilogues, hoisting, inplace, layouts, placing, stacking

__all__ = ["epilogues", "hoisting", "inplace", "layouts", "placing", "stacking"]
