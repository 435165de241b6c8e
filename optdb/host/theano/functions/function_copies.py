"""Prevents in-place nodes in copies of functions from overwriting values that are still needed.

`Function.copy` copies an optimized graph, but not the graph's DestroyHandler, which orders in-place nodes. In a copy
made with ``swap``, two inputs can share memory; in a copy made with ``delete_updates``, nodes still update inputs in
place.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from theano.compile.function_module import Function, FunctionMaker
from theano.compile.ops import deep_copy_op
from theano.gof.link import Container

from optdb.host.api.destroy import DestroyHandler
from optdb.host.api.graph import FunctionGraph, clients
from optdb.host.api.patching import PatchGroup, Wrapper, around
from optdb.host.api.user_inplace import is_overwritten_by_user, mark_unprotected, nodes_in_place


@around
def _ordering(
    init: Callable[..., None],
    self: FunctionMaker,
    inputs: Any,
    outputs: Any,
    mode: Any = None,
    accept_inplace: bool = False,
    function_builder: Any = Function,
    profile: Any = None,
    on_unused_input: Any = None,
    fgraph: FunctionGraph | None = None,
    *args: Any,
    **kwargs: Any,
) -> None:
    if fgraph is not None:
        _make_safe(fgraph, inputs if isinstance(inputs, (list, tuple)) else [inputs])
    init(
        *(self, inputs, outputs, mode, accept_inplace, function_builder, profile, on_unused_input, fgraph),
        *args,
        **kwargs,
    )


def _make_safe(fgraph: FunctionGraph, specs: Sequence[Any]) -> None:
    """Order nodes so that memory is read before a node overwrites it, and mark inputs that the user's ops overwrite."""
    _copy_repeated_inputs(fgraph, specs)
    if any(getattr(node.op, "destroy_map", None) for node in fgraph.apply_nodes):
        # The graph rejects a second DestroyHandler.
        fgraph.attach_feature(DestroyHandler())
        mark_unprotected(fgraph, specs)
        _keep_values(fgraph, specs)


def _keep_values(fgraph: FunctionGraph, specs: Sequence[Any]) -> None:
    """If an input keeps its value but has lost its update, let in-place nodes overwrite a copy of the value."""
    for var, spec in zip(fgraph.inputs, specs):
        lost_update = getattr(spec, "mutable", False) and spec.update is None and spec.value is not None
        if lost_update and not is_overwritten_by_user(var) and nodes_in_place(fgraph, var):
            fgraph.replace(var, deep_copy_op(var), reason="the value is kept")


def _copy_repeated_inputs(fgraph: FunctionGraph, specs: Sequence[Any]) -> None:
    """Make the graph read copies of inputs that share memory with an updated input."""
    by_container: dict[int, list[int]] = {}
    for number, spec in enumerate(specs):
        if isinstance(getattr(spec, "value", None), Container):
            by_container.setdefault(id(spec.value), []).append(number)
    for numbers in by_container.values():
        first, *others = sorted(numbers, key=lambda number: specs[number].update is None)
        for number in others if specs[first].update is not None else ():
            if clients(fgraph, fgraph.inputs[number]):
                fgraph.replace(fgraph.inputs[number], deep_copy_op(fgraph.inputs[first]), reason="the same memory")


patches = PatchGroup(
    "Copies of functions",
    "from the import of Theano on",
    "nothing",
    [Wrapper(FunctionMaker, "__init__", _ordering, "nothing orders the in-place nodes of a copy")],
)
