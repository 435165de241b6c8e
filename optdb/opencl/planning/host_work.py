"""Computes small work of the host in Python, without a compiler.

Beside its arrays, a graph on a device computes sizes and indexes. Theano compiles C for each kind of op among these:
from an empty cache that takes longer than all else, and a plan computes most of it but once. So in functions with
arrays on a device, ops that give numbers and vectors of whole numbers alone run by their ``perform``, and so do those
that take nothing else than a few numbers.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any

from optdb.host.graph import Apply, Constant, FunctionGraph, Variable, io_toposort
from optdb.host.patching import Patch
from optdb.host.scalars import Composite
from optdb.host.tensor import Elemwise
from optdb.opencl.planning.roles import overwrites


def without_inplace(node: Apply) -> Apply:
    """Return a node that computes the same as an elementwise one, into memory of its own."""
    if overwrites(node) or not getattr(node.op, "destroy_map", None):
        return node
    twin = copy.copy(node)
    twin.op = Elemwise(node.op.scalar_op, name=node.op.name, nfunc_spec=node.op.nfunc_spec)
    return twin


def init_py_impls(self: Composite) -> None:
    """Make what computes each output in Python, and in doing so no part of it twice, as Theano's own does."""
    self._impls = [_line_by_line(self.fgraph, out) for out in self.fgraph.outputs]


def _line_by_line(fgraph: FunctionGraph, out: Variable) -> Callable[[Sequence[Any]], Any]:
    """Return what computes an output: it is called for each element of an array, so that places are found here."""
    needed = io_toposort(fgraph.inputs, [out])
    constants = [var for node in needed for var in node.inputs if isinstance(var, Constant)]
    if isinstance(out, Constant):
        constants.append(out)
    variables = [*fgraph.inputs, *constants, *(node.outputs[0] for node in needed)]
    places = {var: place for place, var in enumerate(variables)}
    steps = [(node.op.impl, [places[var] for var in node.inputs]) for node in needed]
    known, wanted = [var.data for var in constants], places[out]

    def compute(inputs: Sequence[Any]) -> Any:
        values = [*inputs, *known]
        for impl, given in steps:
            values.append(impl(*[values[place] for place in given]))
        return values[wanted]

    return compute


PATCHES = (Patch(Composite, "init_py_impls", init_py_impls, "no part of a Composite is computed twice in Python"),)
