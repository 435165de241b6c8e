"""Theano's Scan and IfElse, around graphs and values of other types."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any

from theano.compile.pfunc import rebuild_collect_shared
from theano.ifelse import IfElse
from theano.scan_module import scan_utils
from theano.scan_module.scan_op import Scan

from optdb.host.api.databases import DB, Query, compile_db
from optdb.host.api.graph import Apply, FunctionGraph, Variable, io_toposort

__all__ = [
    "IfElse",
    "Scan",
    "ifelse_between",
    "inner_graph",
    "inner_nodes",
    "optimized_until",
    "recompute",
    "scan_around",
    "scan_with_sequences",
    "watching_mode",
]


#: Theano's modes that look at each node. By name: to import NanGuardMode imports all of Theano's GPU back-end.
_WATCHING_MODES = frozenset(["DebugMode", "MonitorMode", "NanGuardMode"])


def watching_mode(op: Scan) -> str | None:
    """Return the name of a Scan's mode if that looks at each node of the inner function; None if it does not."""
    names = [cls.__name__ for cls in type(op.mode_instance).__mro__]
    return names[0] if _WATCHING_MODES.intersection(names) else None


def inner_graph(op: Scan) -> FunctionGraph:
    """Return a copy of the graph inside of a Scan."""
    return FunctionGraph(list(op.inputs), list(op.outputs), clone=True)


def inner_nodes(op: Scan) -> list[Apply]:
    """Return the nodes inside of a Scan, in topological order."""
    return io_toposort(op.inputs, op.outputs)


def optimized_until(op: Scan, fgraph: FunctionGraph, database: DB) -> None:
    """Rewrite the graph of a Scan by the phases of its mode that precede a database of the main database."""
    position = _position(database)
    query = op.mode_instance.provided_optimizer
    if position is not None and isinstance(query, Query):
        limited = Query(query.include, query.require, query.exclude, query.subquery, position)
        compile_db().query(limited).optimize(fgraph)


def recompute(outputs: list[Variable], replace: dict[Variable, Variable]) -> list[Variable]:
    """Return a copy of a graph in which some variables are computed from others, of other types."""
    _, outputs, _ = rebuild_collect_shared(outputs, replace=replace, rebuild_strict=False)
    return outputs


def scan_around(
    op: Scan,
    fgraph: FunctionGraph,
    array_type: Callable[..., Any],
    key: Hashable,
    database: DB,
    tag: str,
) -> Scan:
    """Return a Scan that does what `op` does, around another inner graph.

    Parameters
    ----------
    op : Scan
        Defines the inputs, outputs and taps of the loop.
    fgraph : FunctionGraph
        The inner graph.
    array_type : callable
        ``array_type(broadcastable=, dtype=)`` returns the type of an outer output.
    key : hashable
        Identifies the graph; ops with the same key may be merged.
    database : DB
        The inner graph has been rewritten by the phases of Theano's main database up to this one, included.
    tag : str
        The phases under this tag follow, too, whatever the mode of the inner function: those of a device.
    """
    # ``gpua`` keeps Scan from asking C code of types that have none; it takes our key instead.
    info = {**op.info, "gpua": True, "gpu_hash": hash(key)}
    scan = Scan(list(fgraph.inputs), list(fgraph.outputs), info, typeConstructor=array_type)
    scan.mode_instance = scan.mode_instance.including(tag).excluding(*_done_until(database))
    return scan


def scan_with_sequences(
    loop: Apply, replaced: dict[Variable, Variable], sequences: dict[Variable, Variable]
) -> list[Variable]:
    """Return the outputs of a loop that takes further sequences, of which its body computes some variables.

    Parameters
    ----------
    loop : Apply
        Of a Scan.
    replaced : dict
        By variable of the body, what stands for it.
    sequences : dict
        By new input of the body, the sequence outside, all of whose parts have the input's type.
    """
    op = loop.op
    outputs = scan_utils.clone(list(op.outputs), replace=replaced)
    types = {out.type.dtype: out.type for out in loop.outputs if isinstance(out.type.broadcastable, tuple)}

    def array_type(broadcastable: Sequence[bool], dtype: str) -> Any:
        # The arrays of a dtype are on one side.
        return types[dtype].clone(broadcastable=broadcastable)

    info = {**op.info, "n_seqs": op.n_seqs + len(sequences)}
    if "gpu_hash" in info:
        info["gpu_hash"] = hash((info["gpu_hash"], tuple(var.type for var in sequences)))
    scan = Scan([*sequences, *op.inputs], outputs, info, typeConstructor=array_type)
    scan.mode_instance = op.mode_instance
    steps, *inputs = loop.inputs
    return scan(steps, *sequences.values(), *inputs, return_list=True)


def _position(database: DB) -> float | None:
    """Return the position of a database in Theano's main database; None if it has none."""
    main = compile_db()
    return main.__position__.get(getattr(database, "name", None))


def _done_until(database: DB) -> list[str]:
    """Return the names of the phases until a database of the main database, itself included."""
    last = _position(database)
    return [] if last is None else [name for name, position in compile_db().__position__.items() if position <= last]


def ifelse_between(op: IfElse, condition: Variable, branches: list[Variable]) -> list[Variable]:
    """Choose as `op` does, between variables of any type.

    The result is a view of the chosen value: Theano cannot copy values of other types than its own,
    and in-place ops respect views.
    """
    # ``gpu`` tells IfElse to leave the types of the branches alone.
    chosen = IfElse(op.n_outs, as_view=True, gpu=True, name=op.name)
    return chosen(condition, *branches, return_list=True)
