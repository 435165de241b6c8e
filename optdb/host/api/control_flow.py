"""Theano's Scan and IfElse, for variables of types that Theano does not know."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from typing import Any

from theano.compile.pfunc import rebuild_collect_shared
from theano.gof.graph import inputs as graph_inputs
from theano.ifelse import IfElse
from theano.scan_module import scan_utils
from theano.scan_module.scan_op import Scan

from optdb.host.api.databases import DB, Query, compile_db
from optdb.host.api.graph import Apply, FunctionGraph, Variable, io_toposort

#: The modes are listed by name, because importing the class NanGuardMode would import the GPU back-end.
_WATCHING_MODES = frozenset(["DebugMode", "MonitorMode", "NanGuardMode"])


def watching_mode(op: Scan) -> str | None:
    """Return the name of a Scan's mode if the mode inspects each node of the inner function; None otherwise."""
    names = [cls.__name__ for cls in type(op.mode_instance).__mro__]
    return names[0] if _WATCHING_MODES.intersection(names) else None


def inner_graph(op: Scan) -> FunctionGraph:
    """Return a copy of a Scan's inner graph."""
    return FunctionGraph(list(op.inputs), list(op.outputs), clone=True)


def inner_nodes(op: Scan) -> list[Apply]:
    """Return the nodes of a Scan's inner graph, in topological order."""
    return io_toposort(op.inputs, op.outputs)


def optimized_until(op: Scan, fgraph: FunctionGraph, database: DB) -> None:
    """Rewrite a Scan's inner graph with those phases of the Scan's mode that precede `database`."""
    position = _position(database)
    query = op.mode_instance.provided_optimizer
    if position is not None and isinstance(query, Query):
        limited = Query(query.include, query.require, query.exclude, query.subquery, position)
        compile_db().query(limited).optimize(fgraph)


def recompute(outputs: list[Variable], replace: dict[Variable, Variable]) -> list[Variable]:
    """Return a copy of a graph with some variables replaced by variables of other types."""
    _, outputs, _ = rebuild_collect_shared(outputs, replace=replace, rebuild_strict=False)
    return outputs


def scan_around(
    op: Scan, fgraph: FunctionGraph, array_type: Callable[..., Any], key: Hashable, database: DB, tag: str
) -> Scan:
    """Return a Scan like `op` with another inner graph.

    Parameters
    ----------
    op : Scan
        The Scan with the inputs, outputs and taps of the loop.
    fgraph : FunctionGraph
        The inner graph.
    array_type : callable
        ``array_type(broadcastable=, dtype=)`` returns the type of an outer output.
    key : hashable
        The key of the graph; ops with the same key may be merged.
    database : DB
        The last database in Theano's main database that has rewritten the inner graph.
    tag : str
        The tag of a device; the phases with this tag always run.
    """
    # If ``gpua`` is set, a Scan's hash is ``gpu_hash``. Otherwise, computing the hash would request C code from types
    # that have none.
    info = {**op.info, "gpua": True, "gpu_hash": hash(key)}
    scan = Scan(list(fgraph.inputs), list(fgraph.outputs), info, typeConstructor=array_type)
    scan.mode_instance = scan.mode_instance.including(tag).excluding(*_done_until(database))
    return scan


def scan_with_sequences(
    loop: Apply, replaced: dict[Variable, Variable], sequences: dict[Variable, Variable]
) -> list[Variable]:
    """Return the outputs of a new loop, in which additional sequences replace some variables of the body.

    `replaced` maps variables of the body to replacements, and `sequences` maps new inputs of the body to outer
    sequences. Unneeded sequences are dropped.
    """
    op = scan_of(loop)
    outputs = scan_utils.clone(list(op.outputs), replace=replaced)
    taken = dict(zip(op.inner_seqs(op.inputs), op.outer_seqs(loop.inputs), strict=True)) | sequences
    read = set(graph_inputs(outputs))
    needed = {var: outside for var, outside in taken.items() if var in read}
    types = tuple(var.type for var in needed)
    scan = _with_body(op, [*needed, *op.inputs[op.n_seqs :]], outputs, {"n_seqs": len(needed)}, types)
    return scan(loop.inputs[0], *needed.values(), *loop.inputs[1 + op.n_seqs :], return_list=True)


def scan_saving(loop: Apply, var: Variable) -> tuple[list[Variable], Variable]:
    """Extend a loop that has no stop condition, so that it also stores the values of `var`, a variable of its body.

    Return the new loop's outputs, and the values of `var` in all steps.
    """
    op = scan_of(loop)
    last_inside, last_outside = op.n_mit_mot_outs + op.n_mit_sot + op.n_sit_sot + op.n_nit_sot, op.n_outs + op.n_nit_sot
    first_length = op.nit_sot_arg_offset + op.n_nit_sot
    body = [*op.outputs[:last_inside], var, *op.outputs[last_inside:]]
    scan = _with_body(op, list(op.inputs), body, {"n_nit_sot": op.n_nit_sot + 1}, "saving")
    steps = loop.inputs[0]
    outputs = scan(*loop.inputs[:first_length], steps, *loop.inputs[first_length:], return_list=True)
    saved = outputs.pop(last_outside)
    return outputs, saved


def scan_of(loop: Apply) -> Scan:
    """Return the Scan of a loop's node."""
    assert isinstance(loop.op, Scan)
    return loop.op


def has_unneeded_sequences(op: Scan) -> bool:
    """Return whether a Scan has sequences that its body does not use."""
    return not set(op.inner_seqs(op.inputs)).issubset(graph_inputs(op.outputs))


def state_slots(loop: Apply) -> dict[int, int]:
    """Map each output of a loop that is a state to the input that holds the state's initial value."""
    op = scan_of(loop)
    states = op.n_mit_mot + op.n_mit_sot + op.n_sit_sot
    return {number: 1 + op.n_seqs + number for number in range(states)}


def scan_overwriting(op: Scan, destroy_map: dict[int, list[int]]) -> Scan:
    """Return a Scan like `op` that writes some states into the memory of their initial values.

    `destroy_map`, an attribute of the new op, maps outputs in `state_slots` to the inputs that they overwrite.
    """
    change = OrderedDict(destroy_map) if destroy_map else None
    return _with_body(op, list(op.inputs), list(op.outputs), {"destroy_map": change})


def _with_body(
    op: Scan, inputs: list[Variable], outputs: list[Variable], changes: dict[str, Any], *difference: Hashable
) -> Scan:
    """Return a Scan like `op` with changed attributes; None removes an attribute."""
    info = {name: value for name, value in {**op.info, **changes}.items() if name not in changes or value is not None}
    if difference and "gpu_hash" in info:
        info["gpu_hash"] = hash((info["gpu_hash"], *difference))
    scan = Scan(inputs, outputs, info, typeConstructor=_array_types(op))
    scan.mode_instance = op.mode_instance
    return scan


def _array_types(op: Scan) -> Callable[..., Any]:
    types = {kind.dtype: kind for kind in op.output_types if isinstance(getattr(kind, "broadcastable", None), tuple)}

    def array_type(broadcastable: Sequence[bool], dtype: str) -> Any:
        # For each dtype, either all arrays are on the host or all arrays are on the device.
        return types[dtype].clone(broadcastable=broadcastable)

    return array_type


def _position(database: DB) -> float | None:
    main = compile_db()
    return main.__position__.get(getattr(database, "name", None))


def _done_until(database: DB) -> list[str]:
    last = _position(database)
    return [] if last is None else [name for name, position in compile_db().__position__.items() if position <= last]


def ifelse_between(op: IfElse, condition: Variable, branches: list[Variable]) -> list[Variable]:
    """Return an IfElse that is like `op`, but chooses between variables of any type.

    The result is a view of the chosen value, because Theano can only copy values of its own types.
    """
    # With ``gpu=True``, IfElse does not convert the types of the branches.
    chosen = IfElse(op.n_outs, as_view=True, gpu=True, name=op.name)
    return chosen(condition, *branches, return_list=True)
