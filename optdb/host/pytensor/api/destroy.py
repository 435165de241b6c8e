"""In-place operation in PyTensor: destroyers, views, and the features that check them."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from typing import Any

from pytensor.compile.aliasing import Supervisor
from pytensor.configdefaults import config
from pytensor.graph.destroyhandler import DestroyHandler
from pytensor.misc.ordered_set import OrderedSet

from optdb.host.api.graph import Apply, FunctionGraph, Variable
from optdb.host.api.patching import Patch, Wrapper


def stock_handler(handler: DestroyHandler, nodes: Iterable[Apply]) -> DestroyHandler:
    """Return PyTensor's own DestroyHandler for the graph of `handler`; the graph consists of `nodes`."""
    stock = DestroyHandler.__new__(DestroyHandler)
    vars(stock).update(
        fgraph=handler.fgraph,
        do_imports_on_attach=handler.do_imports_on_attach,
        algo=handler.algo,
        **{name: {} for name in ("droot", "impact", "root_destroyer", "fail_validate", "view_i", "view_o", "clients")},
        **{"_destroying_apps": OrderedSet(), "debug_all_apps": set(), "stale_droot": True},
    )
    for node in nodes:
        stock.on_import(handler.fgraph, node, "unpickle")
    return stock


def handler_patch(handler: Any) -> Patch:
    """Return a patch that turns new DestroyHandlers into instances of `handler` if cycles must be detected exactly."""

    class GraphHandler(handler):
        """A subclass of `handler` whose methods have the names and results that PyTensor expects."""

        def on_detach(self, fgraph: FunctionGraph) -> None:
            del fgraph.destroy_handler
            self.fgraph = None

        def on_validate(self, fgraph: FunctionGraph) -> bool:
            return handler.validate(self, fgraph)

        def destroyers(self, fgraph: FunctionGraph, var: Variable) -> list[Apply]:
            return self._destroyers_of(var)

        def has_destroyers(self, fgraph: FunctionGraph, variables: Iterable[Variable]) -> bool:
            return handler.has_destroyers(self, variables)

        def clone(self) -> DestroyHandler:
            return DestroyHandler(self.do_imports_on_attach, self.algo)

    def exchanging(init: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(init)
        def init_and_exchange(self: Any, do_imports_on_attach: bool = True, algo: str | None = None) -> None:
            init(self, do_imports_on_attach, algo)
            if type(self) is DestroyHandler and self.algo == "regular" and do_imports_on_attach:
                self.__class__ = GraphHandler

        return init_and_exchange

    return Wrapper(DestroyHandler, "__init__", exchanging, "validation checks only new in-place nodes")


def supervisor_patch(handler: Any) -> Patch:
    """Return a patch that makes a Supervisor query a `handler` once, instead of once for each protected variable."""

    def asking(validate: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(validate)
        def ask_handler(self: Supervisor, fgraph: FunctionGraph) -> Any:
            destroy_handler = getattr(fgraph, "destroy_handler", None)
            if not isinstance(destroy_handler, handler) or config.cycle_detection == "fast":
                return validate(self, fgraph)
            return destroy_handler.supervise(self.protected)

        return ask_handler

    return Wrapper(Supervisor, "on_validate", asking, "the handler tracks which variables a change exposes")
