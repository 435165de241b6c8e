"""An incremental destroy handler, which decides whether a node may overwrite an input.

A node may overwrite memory if no other node overwrites it, no caller owns it, and all its other users run first. Edges
from the other users to the overwriting node are added to an incremental topological order, which detects cycles. Each
validation checks only the changes since the previous validation.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Sequence
from typing import Any, SupportsIndex

from optdb.host.api.bookkeeping import order_by_data
from optdb.host.api.destroy import DestroyHandler, OrderedSet, handler_patch, stock_handler, supervisor_patch
from optdb.host.api.graph import (
    Apply,
    Constant,
    FunctionGraph,
    InconsistencyError,
    Variable,
    clients,
    dependencies,
    dependents,
    is_output,
)
from optdb.host.api.session import install_during_sessions
from optdb.host.api.slots import destroyed_slots, viewed_slots
from optdb.topo.order import TopologicalOrder


class IncrementalDestroyHandler(DestroyHandler):
    """A replacement for the host's DestroyHandler that validates only the changes in the graph.

    Attributes
    ----------
    root_destroyer : dict
        Maps each overwritten root variable to the node that overwrites it. A root is the end of a chain of views.
    view_i : dict
        Maps each view to the variable that it views.
    view_o : dict
        Maps each variable that has views to these views.

    Notes
    -----
    A destroyer is *claimed* once its roots, its fault (if any) and the other users of its roots are known. Any change
    that may affect a destroyer's roots, its fault or these users withdraws the claim. For a claimed destroyer and
    another node, ``_before`` holds how many inputs of the other node use the destroyer's roots. Invariant:
    ``_backward`` holds all edges that the order does not respect yet.
    """

    # -- features of the graph

    def on_attach(self, fgraph: FunctionGraph) -> None:
        if self.fgraph is None and not hasattr(fgraph, "destroy_handler"):
            self._destroying: OrderedSet = OrderedSet()
            self._claims: dict[Apply, list[Variable]] = {}
            self._unclaimed: dict[Apply, None] = {}
            self._before: dict[Apply, dict[Apply, int]] = {}
            self._after: dict[Apply, dict[Apply, None]] = {}
            self._faults: dict[Apply, InconsistencyError] = {}
            self._destroyed_outputs: dict[Apply, Variable] = {}
            self._backward: list[tuple[Apply, Apply]] = []
            self._order: TopologicalOrder[Apply] = TopologicalOrder(self._dependencies, self._dependents)
            self._order.extend(order_by_data(fgraph))
        super().on_attach(fgraph)

    def unpickle(self, fgraph: FunctionGraph) -> None:
        """Add the handler's methods to the graph (Theano calls this method after unpickling, and when it attaches)."""
        fgraph.destroyers = self._destroyers_of
        fgraph.has_destroyers = self.has_destroyers

    def on_detach(self, fgraph: FunctionGraph) -> None:
        del fgraph.destroyers, fgraph.has_destroyers, fgraph.destroy_handler
        self.fgraph = None  # type: ignore[assignment]  # like Theano's: a handler without a graph is not queried

    def on_import(self, fgraph: FunctionGraph, node: Apply, reason: Any) -> None:
        if node not in self._order:
            self._order.insert(node)
        for out, slot in viewed_slots(node):
            self._look_at(out, node.inputs[slot])
        if self.root_destroyer:
            for var in node.inputs:
                self._gain(node, var)
        if getattr(node.op, "destroy_map", None):
            self._destroying.add(node)
            self._unclaimed[node] = None

    def on_prune(self, fgraph: FunctionGraph, node: Apply, reason: Any) -> None:
        if node in self._destroying:
            self._withdraw(node)
            self._destroying.remove(node)
            del self._unclaimed[node]
        if self.root_destroyer:
            for var in node.inputs:
                self._lose(node, var)
        for out, _ in viewed_slots(node):
            # The event for a removed user of `out` arrives later, when `out` is no longer a view.
            self._withdraw_destroyer_of(out)
            self._look_away(out)
        self._order.remove(node)
        self._after.pop(node, None)  # drop the empty dict, whose key would keep the removed node alive

    def on_change_input(
        self, fgraph: FunctionGraph, node: Apply | str, i: int, old: Variable, new: Variable, reason: Any = None
    ) -> None:
        if is_output(node):
            self._withdraw_destroyer_of(old)
            self._withdraw_destroyer_of(new)
            return
        if new.owner is not None and not self._order.add_edge(new.owner, node):
            self._backward.append((new.owner, node))
        if node in self._destroying:
            self._withdraw(node)
        for out, slot in viewed_slots(node):
            if slot == i:
                self._withdraw_destroyer_of(old)
                self._withdraw_destroyer_of(new)
                self._look_away(out)
                self._look_at(out, new)
        if self.root_destroyer:
            self._lose(node, old)
            self._gain(node, new)

    def validate(self, fgraph: FunctionGraph) -> bool:
        """Check the changes since the last call.

        Raises
        ------
        InconsistencyError
            If two nodes destroy the same memory, if a destroyer also reads that memory through another input, if an
            indestructible variable is overwritten, or if no order of the nodes respects all destroyers.
        """
        self._check_claims()
        backward = self._backward
        while backward:
            first, second = backward[-1]
            if self._is_edge(first, second) and not self._order.add_edge(first, second):
                raise InconsistencyError("Dependency graph contains cycles")
            backward.pop()
        return True

    def orderings(self, fgraph: FunctionGraph, ordered: bool = True) -> dict[Apply, Any]:
        """Map each destroyer to the nodes that must run before it although it does not depend on them."""
        self._check_claims()
        if not ordered:
            return {node: set(before) for node, before in self._before.items() if before}
        return OrderedDict((node, list(self._before[node])) for node in self._destroying if self._before[node])

    # -- questions

    def toposort(self) -> list[Apply] | None:
        """Return the nodes in an order that respects the destroyers; None if no such order exists."""
        try:
            self.validate(self.fgraph)
        except InconsistencyError:  # in the middle of a replacement
            return None
        return list(self._order)

    def has_destroyers(self, variables: Iterable[Variable]) -> bool:
        """Return whether a node overwrites the memory of any of `variables`."""
        self._claim_all()
        destroyed = self.root_destroyer
        return bool(destroyed) and any(self.root(var) in destroyed for var in variables)

    def _destroyers_of(self, var: Variable) -> list[Apply]:
        self._claim_all()
        node = self.destroyer_of(var)
        return [] if node is None else [node]

    def supervise(self, protected: Sequence[Variable]) -> None:
        """Raise InconsistencyError if an output of the graph, or one of `protected`, is overwritten."""
        self._claim_all()
        for var in self._destroyed_outputs.values():
            raise InconsistencyError("Trying to destroy a protected Variable.", var)
        destroyed = self.root_destroyer
        if destroyed.keys().isdisjoint(protected) and all(var.owner is None for var in protected):
            return
        for var in protected:
            if self.root(var) in destroyed:
                raise InconsistencyError("Trying to destroy a protected Variable.", var)

    def may_destroy(self, node: Apply, slot: int, protected: set[Variable]) -> bool:
        """Return whether the graph would stay valid if `node` also overwrote its input `slot`.

        If the graph would stay valid, change the topological order so that `node` comes after all other users of the
        input's memory.
        """
        self._claim_all()
        root = self.root(node.inputs[slot])
        if root in self.root_destroyer:
            return False
        aliases = self._aliases(root)
        if any(_is_indestructible(var) or var in protected for var in aliases):
            return False
        if _reads_twice(node, slot, aliases):
            return False
        users = (client for var in aliases for client, _ in clients(self.fgraph, var))
        return self._order.put_after(node, [user for user in users if not is_output(user) and user is not node])

    def destroyer_of(self, var: Variable) -> Apply | None:
        """Return the claimed node that overwrites the memory of `var`."""
        return self.root_destroyer.get(self.root(var))

    def root(self, var: Variable) -> Variable:
        """Return the end of the chain of views that starts at `var`; `var` itself if it is not a view."""
        view_i = self.view_i
        while var in view_i:
            var = view_i[var]
        return var

    # -- claims

    def _claim_all(self) -> None:
        while self._unclaimed:
            self._claim(next(iter(self._unclaimed)))

    def _check_claims(self) -> None:
        self._claim_all()
        for fault in self._faults.values():
            raise fault

    def _claim(self, node: Apply) -> None:
        slots = destroyed_slots(node)
        roots = [self.root(node.inputs[slot]) for slot in slots]
        for i, root in enumerate(roots):
            if root in self.root_destroyer or root in roots[:i]:
                raise InconsistencyError(f"Multiple destroyers of {root}")
        before: dict[Apply, int] = {}
        self._before[node] = before
        for slot, root in zip(slots, roots, strict=True):
            self.root_destroyer[root] = node
            aliases = self._aliases(root)
            self._find_fault(node, slot, aliases)
            for var in aliases:
                for client, _ in clients(self.fgraph, var):
                    if is_output(client):
                        self._destroyed_outputs[node] = var
                    elif client is not node:
                        before[client] = before.get(client, 0) + 1
        for client in before:
            self._after.setdefault(client, {})[node] = None
            self._backward.append((client, node))
        self._claims[node] = roots
        del self._unclaimed[node]

    def _withdraw(self, node: Apply) -> None:
        for root in self._claims.pop(node, ()):
            del self.root_destroyer[root]
        for client in self._before.pop(node, ()):
            del self._after[client][node]
        self._faults.pop(node, None)
        self._destroyed_outputs.pop(node, None)
        self._unclaimed[node] = None

    def _withdraw_destroyer_of(self, var: Variable) -> None:
        node = self.destroyer_of(var)
        if node is not None:
            self._withdraw(node)

    def _find_fault(self, node: Apply, slot: int, aliases: list[Variable]) -> None:
        illegal = [var for var in aliases if _is_indestructible(var)]
        if illegal:
            self._faults[node] = InconsistencyError(f"Attempting to destroy indestructible variables: {illegal}")
        if _reads_twice(node, slot, aliases):
            self._faults[node] = InconsistencyError(f"Input aliasing: {node} ({slot})")

    def _gain(self, node: Apply, var: Variable) -> None:
        destroyer = self._other_destroyer(node, var)
        if destroyer is None:
            return
        before = self._before[destroyer]
        before[node] = before.get(node, 0) + 1
        if before[node] == 1:
            self._after.setdefault(node, {})[destroyer] = None
            self._backward.append((node, destroyer))

    def _lose(self, node: Apply, var: Variable) -> None:
        destroyer = self._other_destroyer(node, var)
        if destroyer is None:
            return
        before = self._before[destroyer]
        before[node] -= 1
        if not before[node]:
            del before[node], self._after[node][destroyer]

    def _other_destroyer(self, node: Apply, var: Variable) -> Apply | None:
        destroyer = self.destroyer_of(var)
        if destroyer is node:
            self._withdraw(node)
            return None
        return destroyer

    # -- views

    def _look_at(self, out: Variable, var: Variable) -> None:
        self.view_i[out] = var
        self.view_o.setdefault(var, OrderedSet()).add(out)
        if _is_indestructible(out):
            self._withdraw_destroyer_of(var)

    def _look_away(self, out: Variable) -> None:
        var = self.view_i.pop(out)
        if _is_indestructible(out):
            self._withdraw_destroyer_of(var)
        views = self.view_o[var]
        views.remove(out)
        if not views:
            del self.view_o[var]

    def _aliases(self, root: Variable) -> list[Variable]:
        aliases = [root]
        view_o = self.view_o
        if root in view_o:
            for var in aliases:  # the list grows during iteration
                aliases.extend(view_o.get(var, ()))
        return aliases

    # -- edges

    def _dependencies(self, node: Apply) -> list[Apply]:
        before = self._before.get(node)
        return dependencies(node) + list(before) if before else dependencies(node)

    def _dependents(self, node: Apply) -> list[Apply]:
        after = self._after.get(node)
        return dependents(self.fgraph, node) + list(after) if after else dependents(self.fgraph, node)

    def _is_edge(self, first: Apply, second: Apply) -> bool:
        if first not in self._order or second not in self._order:
            return False
        return first in self._before.get(second, ()) or any(var.owner is first for var in second.inputs)

    # -- pickling

    def __reduce_ex__(self, protocol: SupportsIndex) -> str | tuple[Any, ...]:
        """Pickle as the host's own handler, so that the pickle loads without optdb."""
        return stock_handler(self, self._order).__reduce_ex__(1)  # newer protocols require an object of this class


def _is_indestructible(var: Variable) -> bool:
    return isinstance(var, Constant) or getattr(var.tag, "indestructible", False)


def _reads_twice(node: Apply, slot: int, aliases: list[Variable]) -> bool:
    if len(node.inputs) == 1:
        return False
    same = {other for dest, other in getattr(node.op, "destroyhandler_tolerate_same", []) if dest == slot}
    aliased = {other for dest, other in getattr(node.op, "destroyhandler_tolerate_aliased", []) if dest == slot}
    return any(
        var in aliases and not (i == slot or i in aliased or (i in same and var is node.inputs[slot]))
        for i, var in enumerate(node.inputs)
    )


install_during_sessions(handler_patch(IncrementalDestroyHandler), supervisor_patch(IncrementalDestroyHandler))
