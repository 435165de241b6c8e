"""Products of matrices on a device.

A product is described by numbers alone (`problem.Problem`: lengths and strides). Its shape determines one of a few
classes, for each of which a device has a block shape (`blocks`). A planner of the device's kind (`cpu`, `gpu`) turns
the numbers into launches, which are cached, and `launches.run` launches them with arrays. Below the highest precision,
`tensor_cores` multiplies where a device has them, by the kernels that `tensor_kernels` writes, or, where a GPU has the
instructions for it, by those of `warpgroups`, of matrices that are packed first. Products of float32 by large tiles are
those of `copied` where a device copies in the background. Small products of float32 on a GPU are those of `quad_tiles`
where their numbers lie in aligned fours.
"""
