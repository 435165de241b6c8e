"""The rules, which derive the layouts of each op's results from the layouts of its inputs.

Invariant: the workers' results, combined according to their layout, equal the result for the whole batch on one device.
"""

from optdb.distributed.sharding.rules import arithmetic, indexing, layers, loops, shapes

__all__ = ["FAMILIES"]

#: The modules that register rules when they are imported, one for each family of ops.
FAMILIES = (arithmetic, shapes, indexing, layers, loops)
