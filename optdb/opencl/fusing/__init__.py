"""Loop fusion on the device: elementwise ops become one kernel, and reductions compute their operands.

`splitting` splits sums that are too wide for a kernel; `groups` finds the nodes of a kernel, and maps its axes to those
of its arrays; `build` makes the ops; `reductions` fuses prologues and epilogues into reductions; on GPUs, `siblings`
merges reductions of the same arrays, and `recomputing` lets kernels compute values that others would store for them;
`sharing` merges kernels that differ only in constants; `rewriters` registers the rewriter with Theano.
"""
