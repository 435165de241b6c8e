"""The rules: for each op, the layouts of its results, given those of its inputs.

Each rule has the same invariant: the workers' results, combined according to the layout, equal the result of one device
for the whole batch. A module holds the rules of one family of ops, and registers them with
`optdb.distributed.sharding.spreading.rule` when it is imported.
"""

from optdb.distributed.sharding.rules import elementwise, indexing, layers, loops, reductions, shapes, whole_batch

__all__ = ["FAMILIES"]

#: The modules of the rules, one for each family of ops.
FAMILIES = (elementwise, shapes, indexing, reductions, layers, loops, whole_batch)
