"""Rewriters of whole graphs of the device, each of which registers itself with Theano.

In their order: `hoisting` moves products out of loops, with `saving`, which lets a loop save products for its gradient;
`stacking` merges many products into one. After fusion (``optdb.opencl.fusing``), `biases` lets products add biases,
`losses` computes cross entropies with their gradients, `placing` writes parts directly into their array, and
`backwards` stores results of backward loops in reverse. `inplace` lets ops and loops overwrite dead inputs, and
`next_values` makes next values of shared variables contiguous.
"""

from optdb.opencl.rewriters import backwards, biases, hoisting, inplace, losses, next_values, placing, stacking

__all__ = ["backwards", "biases", "hoisting", "inplace", "losses", "next_values", "placing", "stacking"]
