"""Computes scalar ops in Python like C and NumPy, and each part of a scalar graph only once.

Without C code, a `Composite` is called for each element of its arrays:

- its elements are Python objects, and ``~True`` is -2, which is true like True;
- Theano computes shared subexpressions once per use. The time grows exponentially with the depth of the graph, and
  the engine, which fuses as much as possible, makes deep graphs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from theano.scalar.basic import Composite, Invert, ScalarOp

from optdb.host.api.graph import Apply, Constant, FunctionGraph, Variable, io_toposort
from optdb.host.api.patching import Patch, PatchGroup

__all__ = ["install"]


def install() -> None:
    """Make scalar ops compute in Python like C from now on."""
    _patches.install()


def _invert(self: Invert, x: Any) -> Any:
    """Return the inverse of a boolean, or of the bits of an integer."""
    return not x if isinstance(x, bool) else ~x


def _init_py_impls(self: Composite) -> None:
    """Make a Python function for each output."""
    self._impls = [_step_by_step(self.fgraph, out) for out in self.fgraph.outputs]


def _impl_of(node: Apply) -> Callable[..., Any]:
    assert isinstance(node.op, ScalarOp)
    return node.op.impl


def _step_by_step(graph: FunctionGraph, out: Variable) -> Callable[[Sequence[Any]], Any]:
    """Return a function that computes an output; it looks nothing up, because it is called for each array element."""
    needed = io_toposort(graph.inputs, [out])
    constants = [var for node in needed for var in node.inputs if isinstance(var, Constant)]
    variables = [*graph.inputs, *constants, *(node.outputs[0] for node in needed)]
    indices = {var: index for index, var in enumerate(variables)}
    steps = [(_impl_of(node), [indices[var] for var in node.inputs]) for node in needed]
    constant_values, wanted = [var.data for var in constants], indices[out]

    def compute(inputs: Sequence[Any]) -> Any:
        values = [*inputs, *constant_values]
        for impl, operands in steps:
            values.append(impl(*[values[index] for index in operands]))
        return values[wanted]

    return compute


_patches = PatchGroup(
    "Scalar ops in Python",
    "from the import of Theano on",
    "nothing",
    [
        Patch(Invert, "impl", _invert, "Python computes ~True as -2, which is true"),
        Patch(Composite, "init_py_impls", _init_py_impls, "no part of a Composite is computed twice in Python"),
    ],
)
