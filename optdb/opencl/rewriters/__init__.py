"""Rewriters for whole device graphs, each of which registers itself with Theano.

These rewriters run in the following order: `hoisting` moves products out of loops, and uses `saving` to let a loop save
products for its gradient; `stacking` merges many products into one. After fusion (``optdb.opencl.fusing``), `biases`
lets products add biases, `losses` computes cross entropies together with their gradients, `placing` writes parts
directly into their array, and `backwards` stores the results of backward loops in reverse. `inplace` lets ops and loops
overwrite dead inputs, and `next_values` makes next values of shared variables contiguous.
"""

from optdb.opencl.rewriters import backwards, biases, hoisting, inplace, losses, next_values, placing, stacking

__all__ = ["backwards", "biases", "hoisting", "inplace", "losses", "next_values", "placing", "stacking"]
