"""Copies of compiled functions: orders their in-place nodes.

`Function.copy` copies the optimized graph without its features. One of them, the DestroyHandler, orders each node that
overwrites memory after all others that read it. Theano makes none for a graph that is optimized already, and the copy
reads what was overwritten.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from theano.compile.function_module import Function, FunctionMaker

from optdb.host.destroy import DestroyHandler
from optdb.host.graph import FunctionGraph
from optdb.host.patching import PatchGroup, Wrapper

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
            _order_destroyers(fgraph)
        init(
            *(self, inputs, outputs, mode, accept_inplace, function_builder, profile, on_unused_input, fgraph),
            *args,
            **kwargs,
        )

    return order_and_init


def _order_destroyers(fgraph: FunctionGraph) -> None:
    """Attach a DestroyHandler, unless the graph has one or nothing overwrites anything."""
    if hasattr(fgraph, "destroy_handler"):
        return
    if any(getattr(node.op, "destroy_map", None) for node in fgraph.apply_nodes):
        fgraph.attach_feature(DestroyHandler())


_patches = PatchGroup(
    "Copies of functions",
    "from the import of Theano on",
    "nothing",
    [Wrapper(FunctionMaker, "__init__", _ordering, "nothing orders the in-place nodes of a copy")],
)
