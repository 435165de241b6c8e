"""Faster versions of FunctionGraph's methods, used while graphs are optimized.

The methods call the features in the same order as Theano's methods, and raise the same errors. No step's cost grows
with the size of the graph.
"""

from __future__ import annotations

import functools
import inspect
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any
from weakref import WeakKeyDictionary

from theano.gof import graph, toolbox
from theano.gof.fg import MissingInputError

from optdb.host.api.config import config
from optdb.host.api.graph import (
    Apply,
    Constant,
    FunctionGraph,
    Variable,
    clients,
    io_toposort,
    is_output,
    nodes_outside,
    roots,
)
from optdb.host.api.patching import Patch

_stock_execute_callbacks = FunctionGraph.execute_callbacks
_stock_replace = FunctionGraph.replace
_stock_toposort = FunctionGraph.toposort


class _Watched:
    """Data about a graph, kept until the last session ends; a change of the graph resets `order` and `by_op`."""

    __slots__ = ("by_op", "listeners", "order")

    def __init__(self) -> None:
        self.listeners: dict[str, tuple[list[Any], list[Callable[..., Any]]]] = {}
        self.order: list[Apply] | None = None
        self.by_op: NodesByOp | None = None


#: Maps an op class to a dict from op id to the nodes with that op.
NodesByOp = dict[type, dict[int, list[Apply]]]

#: Maps a graph to its data. A WeakKeyDictionary would be slower, and each event reads this map. The map keeps graphs
#: alive until the last session ends.
_watched: defaultdict[FunctionGraph, _Watched] = defaultdict(_Watched)

KeptOrder = Callable[[], "list[Apply] | None"]
_kept_orders: WeakKeyDictionary[FunctionGraph, KeptOrder] = WeakKeyDictionary()


def forget() -> None:
    """Forget all graphs, because nothing listens for changes between sessions."""
    _watched.clear()


def execute_callbacks(self: FunctionGraph, name: str, *args: Any, **kwargs: Any) -> None:
    """Notify the features that implement the event `name`, in the order in which they were attached."""
    watched = _watched[self]
    if name != "validate":
        watched.order = watched.by_op = None
    for listen in _listeners(self, watched, name):
        listen(self, *args, **kwargs)


def _change_listeners(fgraph: FunctionGraph, event: str) -> list[Callable[..., Any]]:
    """Discard the cached order after a change, and return the listeners of an event.

    This function does not call the listeners, because passing their arguments on would make each call take 50 % longer.
    """
    watched = _watched[fgraph]
    watched.order = watched.by_op = None
    return _listeners(fgraph, watched, event)


def _listeners(fgraph: FunctionGraph, watched: _Watched, event: str) -> list[Callable[..., Any]]:
    if getattr(fgraph, "profile", None):
        return [functools.partial(_keep_times, event)]
    entry = watched.listeners.get(event)
    if entry is None or entry[0] != fgraph._features:
        entry = watched.listeners[event] = (list(fgraph._features), _listening(fgraph._features, event))
    return entry[1]


def _keep_times(event: str, fgraph: FunctionGraph, *args: Any, **kwargs: Any) -> None:
    _stock_execute_callbacks(fgraph, event, *args, **kwargs)


def _listening(features: list[Any], name: str) -> list[Callable[..., Any]]:
    does_nothing = getattr(toolbox.Feature, name, None)
    methods = []
    for feature in features:
        method = getattr(feature, name, None)
        if method is not None and getattr(method, "__func__", None) is not does_nothing:
            methods.append(method)
    return methods


@contextmanager
def kept_order(fgraph: FunctionGraph, order: KeptOrder) -> Iterator[None]:
    """Within the block, make ``fgraph.toposort()`` return the result of `order`, unless that result is None."""
    before = _kept_orders.get(fgraph)
    _kept_orders[fgraph] = order
    try:
        yield
    finally:
        del _kept_orders[fgraph]
        if before is not None:
            _kept_orders[fgraph] = before


def toposort(self: FunctionGraph) -> list[Apply]:
    """Return the nodes in topological order; sort them only if no feature maintains an order.

    The order that a destroy handler maintains ignores the constraints of other features; if there are any, Theano's
    method sorts the nodes.
    """
    keeper = getattr(self, "destroy_handler", None)
    order = getattr(keeper, "toposort", None)
    if order is None:
        keeper, order = None, _kept_orders.get(self)
    if any(_orders(feature, self) for feature in self._features if feature is not keeper):
        return _stock_toposort(self)
    if order is None:
        return order_by_data(self)
    nodes = order()
    return _stock_toposort(self) if nodes is None else nodes


def order_by_data(fgraph: FunctionGraph) -> list[Apply]:
    """Return the nodes in the order of `io_toposort`; within a session, sort again only after a change."""
    if FunctionGraph.execute_callbacks is not execute_callbacks:  # outside a session, changes are not noticed
        return io_toposort(fgraph.inputs, fgraph.outputs)
    watched = _watched[fgraph]
    if watched.order is None:
        watched.order = io_toposort(fgraph.inputs, fgraph.outputs)
    return watched.order.copy()


def nodes_by_op(fgraph: FunctionGraph) -> NodesByOp:
    """Return the nodes grouped by class and id of their op; within a session, group them again only after a change."""
    if FunctionGraph.execute_callbacks is not execute_callbacks:  # outside a session, changes are not noticed
        return _grouped(fgraph.apply_nodes)
    watched = _watched[fgraph]
    if watched.by_op is None:
        watched.by_op = _grouped(fgraph.apply_nodes)
    return watched.by_op


def _grouped(nodes: Iterable[Apply]) -> NodesByOp:
    grouped: defaultdict[type, dict[int, list[Apply]]] = defaultdict(lambda: defaultdict(list))
    for node in nodes:
        op = node.op
        grouped[type(op)][id(op)].append(node)
    return grouped


def reconnect(fgraph: FunctionGraph, variables: Iterable[Variable]) -> None:
    """Reconnect the users of `variables` after a replacement that raised an error.

    Theano sets a node's new input before it imports the input's ancestors. If the import fails, Theano's history does
    not contain the change of the input, and cannot undo it.
    """
    if fgraph in _watched:
        _watched[fgraph].order = _watched[fgraph].by_op = None
    for var in variables:
        if var not in fgraph.variables:
            continue
        for client, i in clients(fgraph, var):
            if is_output(client):
                fgraph.outputs[i] = var
            else:
                client.inputs[i] = var


def _orders(feature: Any, fgraph: FunctionGraph) -> bool:
    return hasattr(feature, "orderings") and bool(feature.orderings(fgraph))


def import_node(self: FunctionGraph, apply_node: Apply, check: bool = True, reason: Any = None) -> None:
    """Import a node and its ancestors into the graph, operands first."""
    new_nodes = nodes_outside(self, apply_node.outputs)
    if check:
        for node in new_nodes:
            _check_importable(self, node)
    reason_text = str(reason)
    for node in new_nodes:
        import_one(self, node, reason_text)
        for listen in _change_listeners(self, "on_import"):
            listen(self, node, reason)


def _check_importable(fgraph: FunctionGraph, node: Apply) -> None:
    if getattr(node, "fgraph", fgraph) is not fgraph:
        raise Exception(f"{node} is already owned by another fgraph")
    for var in node.inputs:
        if getattr(var, "fgraph", fgraph) is not fgraph:
            raise Exception(f"{var} is already owned by another fgraph")
        undeclared = (
            var.owner is None
            and not isinstance(var, Constant)
            and var not in fgraph.variables
            and var not in fgraph.inputs
        )
        if undeclared:
            raise MissingInputError(
                f"Input {node.inputs.index(var)} of the graph (indices start "
                f"from 0), used to compute {node}, was not "
                "provided and not given a value. Use the "
                "Theano flag exception_verbosity='high', "
                "for more information on this error.",
                variable=var,
            )


def import_one(fgraph: FunctionGraph, node: Apply, reason: str) -> None:
    """Import a node whose operands are in `fgraph`, without notifying the features."""
    variables = fgraph.variables
    fgraph.__setup_node__(node)
    fgraph.apply_nodes.add(node)
    _note(node, "imported_by", reason)
    for output in node.outputs:
        fgraph.__setup_r__(output)
        variables.add(output)
    for i, var in enumerate(node.inputs):
        if var not in variables:
            fgraph.__setup_r__(var)
            variables.add(var)
        var.clients.append((node, i))


def _note(node: Apply, name: str, reason: str) -> None:
    reasons = getattr(node.tag, name, None)
    if reasons is None:
        setattr(node.tag, name, [reason])
    else:
        reasons.append(reason)


def replace(self: FunctionGraph, r: Variable, new_r: Variable, reason: Any = None, verbose: bool | None = None) -> None:
    """Make the users of `r` use `new_r` instead."""
    if verbose is None:
        verbose = config.optimizer_verbose
    same_type = r.type is new_r.type or r.type == new_r.type
    if verbose or not same_type or config.compute_test_value != "off" or getattr(r, "fgraph", self) is not self:
        _stock_replace(self, r, new_r, reason, verbose)
        return
    if r not in self.variables:
        return
    for node, i in r.clients.copy():
        used = _used_by(self, node)
        assert used[i] is r
        _exchange(self, node, used, i, new_r, reason)


def change_input(self: FunctionGraph, node: Apply | str, i: int, new_r: Variable, reason: Any = None) -> None:
    """Replace input `i` of a node, or output `i` of the graph, with `new_r`."""
    used = _used_by(self, node)
    r = used[i]
    if r.type != new_r.type:
        raise TypeError("The type of the replacement must be the same as the type of the original Variable.", r, new_r)
    _exchange(self, node, used, i, new_r, reason)


def _used_by(fgraph: FunctionGraph, node: Apply | str) -> list[Variable]:
    if isinstance(node, str):
        return fgraph.outputs
    if node.fgraph is not fgraph:
        raise Exception(f"Cannot operate on {node} because it does not belong to this FunctionGraph")
    return node.inputs


def _exchange(
    fgraph: FunctionGraph, node: Apply | str, used: list[Variable], i: int, new: Variable, reason: Any
) -> None:
    old = used[i]
    used[i] = new
    if old is new:
        return
    if new not in fgraph.variables:
        fgraph.__import_r__(new, reason=reason)
    new.clients.append((node, i))
    fgraph.__remove_client__(old, (node, i), reason=reason)
    for listen in _change_listeners(fgraph, "on_change_input"):
        listen(fgraph, node, i, old, new, reason=reason)


def remove_client(
    self: FunctionGraph, r: Variable, client_to_remove: tuple[Apply | str, int], reason: Any = None
) -> None:
    """Remove a user of `r`, and prune the nodes and variables that are left without users."""
    todo: list[tuple[Variable, Apply | str, int]] = [(r, *client_to_remove)]
    reason_text = None
    while todo:
        var, user, slot = todo.pop()
        users = var.clients
        # `list.remove` is slow, because it compares nodes.
        for index, (node, i) in enumerate(users):
            if i == slot and (node is user or (node.__class__ is str and node == user)):
                del users[index]
                break
        else:
            raise ValueError(f"{user} does not use {var} at {slot}")
        if users:
            continue
        owner = var.owner
        if owner is None:
            self.variables.remove(var)
            del var.fgraph
            continue
        outputs = owner.outputs
        if len(outputs) > 1 and any(output.clients for output in outputs):
            continue
        if reason_text is None:
            reason_text = str(reason)
        _note(owner, "removed_by", reason_text)
        self.apply_nodes.remove(owner)
        self.variables.difference_update(outputs)
        for listen in _change_listeners(self, "on_prune"):
            listen(self, owner, reason)
        for i, operand in enumerate(owner.inputs):
            todo.append((operand, owner, i))


def validate(self: toolbox.Validator, fgraph: FunctionGraph) -> None:
    """Ask the features whether the graph is valid.

    If ``verbose`` is set, the caller's name is printed. Theano finds the caller with ``inspect``, which reads the files
    of all modules.
    """
    began = time.time()
    try:
        fgraph.execute_callbacks("validate")
    except Exception as error:
        frame = inspect.currentframe()
        assert frame is not None and frame.f_back is not None
        caller = frame.f_back
        name, variables = caller.f_code.co_name, caller.f_locals
        if name != "replace_all_validate" and variables.get("verbose", False):
            print(f"validate failed on node {variables.get('r', '')}.\n Reason: {name}, {error}")
        raise
    if fgraph.profile:
        fgraph.profile.validate_time += time.time() - began


PATCHES = [
    Patch(FunctionGraph, "execute_callbacks", execute_callbacks, "features that do not listen are not called"),
    Patch(FunctionGraph, "__import__", import_node, "a node is imported without sorting its ancestors"),
    Patch(FunctionGraph, "replace", replace, "a replacement checks the types once"),
    Patch(FunctionGraph, "change_input", change_input, "a change needs no call for each of its steps"),
    Patch(FunctionGraph, "__remove_client__", remove_client, "a reason is formatted once"),
    Patch(graph, "io_toposort", io_toposort, "a sort does not visit finished nodes again"),
    Patch(graph, "inputs", roots, "variables are looked up in sets instead of lists"),
    Patch(FunctionGraph, "toposort", toposort, "the engine keeps the order"),
    Patch(toolbox.Validator, "validate_", validate, "the caller is found without a search of all modules"),
]
