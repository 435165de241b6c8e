"""Computes small work of the host in Python, without a compiler.

Beside its arrays, a graph on a device computes sizes and indexes. Theano compiles C for each kind of op among these:
from an empty cache that takes longer than all else, and a plan computes most of it but once. So in functions with
arrays on a device, ops that give numbers and vectors of whole numbers alone run by their ``perform``, and so do those
that take nothing else than a few numbers.
"""

from __future__ import annotations

import copy

from optdb.host.graph import Apply
from optdb.host.tensor import Elemwise
from optdb.opencl.planning.roles import overwrites


def without_inplace(node: Apply) -> Apply:
    """Return a node that computes the same as an elementwise one, into memory of its own."""
    if overwrites(node) or not getattr(node.op, "destroy_map", None):
        return node
    twin = copy.copy(node)
    twin.op = Elemwise(node.op.scalar_op, name=node.op.name, nfunc_spec=node.op.nfunc_spec)
    return twin
