"""From lazy tensors to few kernels.

``scheduler`` decides which tensors are stored, ``schedule_nodes`` orders and fuses the loops that store them, and
`lowering` writes the body of each loop. ``optdb.codegen.loops`` generates the kernels, and ``optdb.device.functions``
runs them.
"""
