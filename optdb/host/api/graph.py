"""Graph classes of the host (nodes, variables, the FunctionGraph), and functions that traverse graphs.

Theano 1.0.5 stores the users of a variable on the variable; only :func:`clients` relies on this.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from theano.gof import Apply, Constant, FunctionGraph, InconsistencyError, Op, Variable
from theano.gof import graph as _stock
from theano.gof.graph import clone_get_equiv
from theano.gof.op import PureOp
from theano.gof.utils import MetaObject

if TYPE_CHECKING:
    from typing_extensions import TypeIs

T = TypeVar("T")
OpT = TypeVar("OpT", bound=PureOp)


def reachable(starts: Iterable[T], following: Callable[[T], Iterable[T]]) -> dict[T, None]:
    """Return `starts` and everything reachable from them through `following`, in order of discovery."""
    reached = dict.fromkeys(starts)
    todo = list(reached)
    while todo:
        for other in following(todo.pop()):
            if other not in reached:
                reached[other] = None
                todo.append(other)
    return reached


def op_classes() -> Iterable[type[PureOp]]:
    """Return all existing op classes, parents before children."""
    return reachable([PureOp], type.__subclasses__)


def op_of(node: Apply, kind: type[OpT]) -> OpT:
    """Return a node's op, which must be an instance of `kind`."""
    assert isinstance(node.op, kind), node.op
    return node.op


def owner_of(var: Variable) -> Apply:
    """Return the node that computes a variable; it must have one."""
    assert var.owner is not None, var
    return var.owner


def clients(fgraph: FunctionGraph, var: Variable) -> list[tuple[Apply | str, int]]:
    """Return the clients of `var` as ``(node, input index)`` pairs; :func:`is_output` detects graph outputs.

    Inputs that `Function.copy(swap=...)` adds without importing them have no clients.
    """
    return getattr(var, "clients", [])


def is_output(client: Apply | str) -> TypeIs[str]:
    """Return whether a client is a graph output instead of a node."""
    return client == "output"


def dependencies(node: Apply) -> list[Apply]:
    """Return the nodes that compute `node`'s inputs (with duplicates)."""
    return [var.owner for var in node.inputs if var.owner is not None]


def dependents(fgraph: FunctionGraph, node: Apply) -> list[Apply]:
    """Return the nodes of `fgraph` that use `node`'s outputs (with duplicates)."""
    users = [client for var in node.outputs for client, _ in var.clients if client.__class__ is not str]
    return users  # type: ignore[return-value]  # mypy needs isinstance, which is slower; this runs for each node


def drop_repeated_traces(variables: Iterable[Variable]) -> None:
    """Remove duplicate stack traces, such as those that rewriters add to shared constants."""
    for var in variables:
        traces: Sequence[Any] = getattr(var.tag, "trace", ())
        if len(traces) < 2 or isinstance(traces[0], tuple):  # at most one trace, or a trace not in a list
            continue
        once = {id(trace): trace for trace in traces}
        if len(once) < len(traces):
            var.tag.trace = list(once.values())


_stock_io_toposort = _stock.io_toposort


def io_toposort(
    inputs: Iterable[Variable],
    outputs: Sequence[Variable],
    orderings: dict[Apply, list[Apply]] | None = None,
    clients: dict | None = None,
) -> list[Apply]:
    """Return the nodes between `inputs` and `outputs`, in the same order as Theano's function.

    Theano's function visits each operand's node once per user.
    """
    if orderings or clients is not None:
        return _stock_io_toposort(inputs, outputs, orderings, clients)
    given = set(inputs)
    done: dict[Apply, None] = {}
    todo = [var.owner for var in reversed(outputs) if var.owner is not None]
    while todo:
        node = todo[-1]
        if node in done or node.outputs[0] in given:
            todo.pop()
            continue
        size = len(todo)
        for var in node.inputs:
            owner = var.owner
            if owner is not None and owner not in done and var not in given:
                todo.append(owner)
        if len(todo) == size:
            todo.pop()
            done[node] = None
    return list(done)


def roots(outputs: Iterable[Variable], blockers: Iterable[Variable] | None = None) -> list[Variable]:
    """Return the inputs and constants of `outputs`, in the same order as Theano's ``graph.inputs``."""
    seen = set()
    blocked = set(blockers or ())
    todo = list(outputs)
    found = []
    while todo:
        var = todo.pop()
        if var in seen:
            continue
        seen.add(var)
        if var.owner is None:
            found.append(var)
        elif var not in blocked:
            todo.extend(reversed(var.owner.inputs))
    return found


def node_ancestors(outputs: Iterable[Variable]) -> set[Apply]:
    """Return every node that `outputs` depend on."""
    return set(reachable((var.owner for var in outputs if var.owner is not None), dependencies))


def nodes_outside(fgraph: FunctionGraph, variables: Iterable[Variable | None]) -> list[Apply]:
    """Return the nodes outside `fgraph` that `variables` depend on, operands first."""
    members = fgraph.apply_nodes
    order: list[Apply] = []
    expanded: set[Apply] = set()
    done: set[Apply] = set()
    todo = [var.owner for var in variables if var is not None and var.owner is not None and var.owner not in members]
    while todo:
        node = todo.pop()
        if node in done:
            continue
        if node in expanded:
            done.add(node)
            order.append(node)
            continue
        expanded.add(node)
        todo.append(node)
        for var in node.inputs:
            owner = var.owner
            if owner is not None and owner not in members and owner not in expanded:
                todo.append(owner)
    return order
