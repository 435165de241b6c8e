"""The hook that makes Python thunks operate on whole arrays.

Python thunks that are made while the engine is active operate on whole arrays, except with Theano's reference linker,
``py``. Constant folding calls ``perform`` if a node has few numbers, which takes less time than translating the node.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from theano.gof.link import PerformLinker
from theano.gof.op import Op

from optdb.host.api.graph import Apply, FunctionGraph
from optdb.host.api.patching import PatchGroup, Wrapper, around
from optdb.host.theano.vectorized.registry import Compute, function_of


class _ReferenceLinking(threading.local):
    """The conditions under which new thunks run ``perform`` in this thread."""

    reference: FunctionGraph | None = None
    #: Whether new thunks are for small nodes that run only once.
    is_once: bool = False


_linking = _ReferenceLinking()


def install() -> None:
    """Make later Python thunks operate on whole arrays."""
    _patches.install()


def uninstall() -> None:
    """Make later Python thunks call ``Op.perform``."""
    _patches.uninstall()


@around
def _computing_arrays(
    make_py_thunk: Callable[..., Any],
    self: Op,
    node: Apply,
    storage_map: Any,
    compute_map: Any,
    no_recycling: Any,
    debug: bool = False,
) -> Any:
    compute = None if debug or _is_reference(node) else function_of(node)
    if compute is None:
        return make_py_thunk(self, node, storage_map, compute_map, no_recycling, debug)
    return _thunk(compute, node, storage_map, compute_map)


@contextmanager
def by_perform() -> Iterator[None]:
    """In the block, let new thunks call ``Op.perform``, which is faster for small nodes that run only once."""
    outer, _linking.is_once = _linking.is_once, True
    try:
        yield
    finally:
        _linking.is_once = outer


def _is_reference(node: Apply) -> bool:
    if _linking.is_once:
        return True
    graph = getattr(node, "fgraph", None)
    return graph is not None and graph is _linking.reference


def _thunk(compute: Compute, node: Apply, storage_map: Any, compute_map: Any) -> Callable[[], None]:
    inputs = [storage_map[var] for var in node.inputs]
    outputs = [storage_map[var] for var in node.outputs]
    flags = [compute_map[var] for var in node.outputs]

    def thunk() -> None:
        compute([cell[0] for cell in inputs], outputs)
        for flag in flags:
            flag[0] = True

    made: Any = thunk  # Theano's thunks are functions with attributes
    made.inputs = inputs
    made.outputs = outputs
    made.perform = node.op.perform
    made.lazy = False
    return made


@around
def _as_reference(make_all: Callable[..., Any], self: PerformLinker, *args: Any, **kwargs: Any) -> Any:
    outer, _linking.reference = _linking.reference, self.fgraph
    try:
        return make_all(self, *args, **kwargs)
    finally:
        _linking.reference = outer


_patches = PatchGroup(
    "Whole arrays in Python",
    "from optdb.enable() on, or while a function is compiled with optdb.mode()",
    "optdb.disable()",
    [
        Wrapper(Op, "make_py_thunk", _computing_arrays, "perform loops over elements in Python for many ops"),
        Wrapper(PerformLinker, "make_all", _as_reference, "the linker py is the reference, which runs perform"),
    ],
)
