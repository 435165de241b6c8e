"""Copies of compiled functions: keeps their in-place nodes from overwriting what is still needed.

`Function.copy` copies the optimized graph without its features. One of them, the DestroyHandler, orders each node that
overwrites memory after all others that read it. Theano makes none for a graph that is optimized already, and the copy
reads what was overwritten.

`Function.copy(swap=...)` may replace a shared variable by one that the function has as an input already. The graph then
has two inputs with the same memory, and no DestroyHandler knows that. ``copy(delete_updates=True)`` leaves nodes in the
graph that compute a variable's next value over the present one, which then has to stay.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from theano.compile.function_module import Function, FunctionMaker
from theano.compile.ops import deep_copy_op
from theano.gof.link import Container

from optdb.host.api.destroy import DestroyHandler
from optdb.host.api.graph import FunctionGraph, clients
from optdb.host.api.patching import PatchGroup, Wrapper
from optdb.host.api.user_inplace import is_overwritten_by_user, mark_unprotected, nodes_in_place

__all__ = ["order_copies"]


def order_copies() -> None:
    """Order the in-place nodes of each function that is made from an optimized graph, from now on."""
    _patches.install()


def _ordering(init: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(init)
    def order_and_init(
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

    return order_and_init


def _make_safe(fgraph: FunctionGraph, specs: Sequence[Any]) -> None:
    """Let nodes that overwrite memory neither run before its readers nor be taken for the optimizer's."""
    _copy_repeated_inputs(fgraph, specs)
    if any(getattr(node.op, "destroy_map", None) for node in fgraph.apply_nodes):
        # The graph refuses a second handler.
        fgraph.attach_feature(DestroyHandler())
        mark_unprotected(fgraph, specs)
        _keep_values(fgraph, specs)


def _keep_values(fgraph: FunctionGraph, specs: Sequence[Any]) -> None:
    """Let nodes overwrite copies of values that outlive a call and get no next value any more."""
    for var, spec in zip(fgraph.inputs, specs):
        lost_update = getattr(spec, "mutable", False) and spec.update is None and spec.value is not None
        if lost_update and not is_overwritten_by_user(var) and nodes_in_place(fgraph, var):
            fgraph.replace(var, deep_copy_op(var), reason="the value stays")


def _copy_repeated_inputs(fgraph: FunctionGraph, specs: Sequence[Any]) -> None:
    """Let the graph read copies of inputs whose memory is another input's, if that variable gets a next value."""
    by_container: dict[int, list[int]] = {}
    for number, spec in enumerate(specs):
        if isinstance(getattr(spec, "value", None), Container):
            by_container.setdefault(id(spec.value), []).append(number)
    for numbers in by_container.values():
        first, *others = sorted(numbers, key=lambda number: specs[number].update is None)
        for number in others if specs[first].update is not None else ():
            if clients(fgraph, fgraph.inputs[number]):
                fgraph.replace(fgraph.inputs[number], deep_copy_op(fgraph.inputs[first]), reason="the same memory")


_patches = PatchGroup(
    "Copies of functions",
    "from the import of Theano on",
    "nothing",
    [Wrapper(FunctionMaker, "__init__", _ordering, "nothing orders the in-place nodes of a copy")],
)
