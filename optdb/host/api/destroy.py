"""In-place operation in the host: destroyers, views, and the features that check them.

An op's ``destroy_map`` lists the inputs that the op overwrites, and ``view_map`` lists the outputs that share memory
with an input.
"""

from __future__ import annotations

import functools
from collections import OrderedDict
from collections.abc import Callable, Iterable
from typing import Any

from theano.compile.function_module import Supervisor
from theano.gof.destroyhandler import DestroyHandler
from theano.misc.ordered_set import OrderedSet
from theano.scalar import Composite, transfer_type
from theano.tensor.opt import InplaceElemwiseOptimizer

from optdb.host.api.config import config
from optdb.host.api.graph import Apply, FunctionGraph, Variable, io_toposort
from optdb.host.api.patching import Patch, Wrapper
from optdb.host.api.tensor import Elemwise


def protected_variables(fgraph: FunctionGraph) -> set[Variable]:
    """Return the variables that no op may overwrite: the outputs, and the variables that the caller keeps."""
    protected = set(fgraph.outputs)
    for feature in fgraph._features:
        if isinstance(feature, Supervisor):
            protected.update(feature.protected)
    return protected


def inplace_scalar_op(op: Elemwise, outputs: list[Variable], pattern: dict[int, int]) -> Any:
    """Return the scalar op for an in-place version of `op`; `pattern` maps outputs to inputs that they overwrite."""
    scalar_op = op.scalar_op
    if hasattr(scalar_op, "make_new_inplace"):
        return scalar_op.make_new_inplace(
            transfer_type(*[pattern.get(i, out.type.dtype) for i, out in enumerate(outputs)])
        )
    return scalar_op.__class__(transfer_type(*[pattern.get(i) for i in range(len(outputs))]))


def reads_after_storing(op: Elemwise, output: int, slot: int) -> bool:
    """Return whether an Elemwise's C code may read an input after it has stored an output.

    A Composite stores each output as soon as this output is computed. Theano's in-place rewriter does not check whether
    the remaining steps still read the overwritten input.
    """
    scalar_op = op.scalar_op
    if not isinstance(scalar_op, Composite) or len(scalar_op.outputs) == 1:
        return False
    read = scalar_op.inputs[slot]
    before = set(io_toposort(scalar_op.inputs, [scalar_op.outputs[output]]))
    after = set(io_toposort(scalar_op.inputs, scalar_op.outputs)) - before
    return any(read in node.inputs for node in after)


def stock_handler(handler: DestroyHandler, nodes: Iterable[Apply]) -> DestroyHandler:
    """Return Theano's own DestroyHandler, for the graph of `handler`; `nodes` are the nodes of this graph."""
    stock = DestroyHandler.__new__(DestroyHandler)
    vars(stock).update(
        fgraph=handler.fgraph,
        do_imports_on_attach=handler.do_imports_on_attach,
        algo=handler.algo,
        **{name: OrderedDict() for name in ("droot", "impact", "root_destroyer", "fail_validate", "clients")},
        **{"destroyers": OrderedSet(), "view_i": {}, "view_o": {}, "debug_all_apps": set(), "stale_droot": True},
    )
    for node in nodes:
        stock.on_import(handler.fgraph, node, "unpickle")
    return stock


def handler_patch(handler: type[DestroyHandler]) -> Patch:
    """Return a patch that gives new DestroyHandlers the class `handler` if ``cycle_detection`` is ``regular``."""

    def exchanging(init: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(init)
        def init_and_exchange(self: DestroyHandler, do_imports_on_attach: bool = True, algo: str | None = None) -> None:
            init(self, do_imports_on_attach, algo)
            if type(self) is DestroyHandler and self.algo == "regular" and do_imports_on_attach:
                self.__class__ = handler

        return init_and_exchange

    return Wrapper(DestroyHandler, "__init__", exchanging, "validation checks only new in-place nodes")


def supervisor_patch(handler: type[DestroyHandler]) -> Patch:
    """Return a patch that makes a Supervisor query a `handler` once, instead of once for each protected variable."""

    def asking(validate: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(validate)
        def ask_handler(self: Supervisor, fgraph: FunctionGraph) -> Any:
            destroy_handler = getattr(fgraph, "destroy_handler", None)
            if not isinstance(destroy_handler, handler) or config.cycle_detection == "fast":
                return validate(self, fgraph)
            destroy_handler.supervise(self.protected)
            return None

        return ask_handler

    return Wrapper(Supervisor, "validate", asking, "the handler tracks which variables a change exposes")
