"""The scheduler: turns lazy tensors into few kernels.

``scheduler`` decides which tensors are stored, ``schedule_nodes`` orders and fuses the loops that store them, and
`lowering` writes the body of each loop. ``optdb.codegen.loops`` generates the kernels, and ``optdb.device.functions``
runs them.
"""
