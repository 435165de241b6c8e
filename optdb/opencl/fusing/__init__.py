"""Loop fusion on the device: elementwise ops are fused with each other and with reductions into kernels.

`splitting` splits sums that are too wide for a kernel; `groups` finds the nodes of each kernel, and maps the kernel's
axes to the axes of its arrays; `build` creates the ops; `reductions` fuses prologues and epilogues into reductions; on
GPUs, `siblings` merges reductions of the same arrays, and `recomputing` lets kernels compute values that another kernel
would otherwise store; `rewriters` calls all of these, lets kernels that differ only in constants share their code, and
registers the rewriter with Theano.
"""
