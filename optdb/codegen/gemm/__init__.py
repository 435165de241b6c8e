"""Products of matrices on a device.

A product is described by numbers alone (`problem.Problem`: lengths and strides). By its shape it falls into one of a
few classes, for each of which a device has a block shape (`blocks`). A planner of the device's kind (`cpu`, `gpu`)
turns the numbers into launches, which are remembered, and `launches.run` hands them the arrays.
"""
