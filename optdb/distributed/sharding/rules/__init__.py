"""The rules, which derive the layouts of each op's results from the layouts of its inputs.

All rules have the same invariant: the workers' results, combined according to their layout, equal the result that one
device computes for the whole batch.
"""

from optdb.distributed.sharding.rules import arithmetic, indexing, layers, loops, shapes

__all__ = ["FAMILIES"]

#: The modules that register rules when they are imported, one for each family of ops.
FAMILIES = (arithmetic, shapes, indexing, layers, loops)
