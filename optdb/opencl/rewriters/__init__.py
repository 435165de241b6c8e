"""Rewriters of whole graphs of the device, each of which registers itself with Theano.

In their order: `hoisting` moves products out of loops, with `saving`, which lets a loop keep what its gradient needs;
`stacking` makes one product of many. After fusion (``optdb.opencl.fusing``), `biases` lets products add biases,
`losses` lets cross entropies give their gradients, `placing` makes arrays of their parts, and `backwards` stores what
loops compute backwards in order. `inplace` lets ops and loops overwrite what nobody needs any more, and `next_values`
puts next values of shared variables in order.
"""

from optdb.opencl.rewriters import backwards, biases, hoisting, inplace, losses, next_values, placing, stacking

__all__ = ["backwards", "biases", "hoisting", "inplace", "losses", "next_values", "placing", "stacking"]
