"""Loop fusion on the device: elementwise ops become one kernel, and reductions compute their operands.

`splitting` splits sums that are too wide for a kernel; `groups` finds the nodes of a kernel, and how it sees arrays of
other shapes; `build` makes the ops; `reductions` fuses prologues and epilogues into reductions; on GPUs, `siblings`
makes reductions of the same arrays one, and `recomputing` lets kernels compute what others would store for them;
`sharing` lets kernels that differ in numbers alone be one; `rewriters` registers the rewriter with Theano.
"""
