"""Translates a function's optimized graph to a device graph.

Floating-point arrays are placed on the device. Integers and scalars, such as an index or a factor, are placed on the
device only if no op reads them on the host and the device can run every op that depends on them.
"""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Collection, Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from optdb.callers import caller_level
from optdb.host.api import ops
from optdb.host.api.databases import Query, compile_db
from optdb.host.api.destroy import Supervisor
from optdb.host.api.graph import Apply, FunctionGraph, Variable, clients, clone_get_equiv, is_output
from optdb.host.api.linking import DeepCopyOp, deep_copy_op
from optdb.host.api.ops import mrg_uniform_base
from optdb.host.api.rewriters import Optimizer
from optdb.host.api.session import optimizing
from optdb.host.api.testvalues import without_test_values
from optdb.host.api.user_inplace import is_overwritten_by_user, nodes_in_place
from optdb.host.api.variables import SharedVariable, is_host_array
from optdb.host.theano.functions.optimized import plain_copy, without_copies
from optdb.lifters.report import LiftReport, lift_reports
from optdb.opencl.aliasing import may_lie_in, view_root
from optdb.opencl.device import OPENCL, POSITION, TAG
from optdb.opencl.rewriters.inplace import PLAIN
from optdb.opencl.transfers import HostFromOpenCL, as_opencl_variable
from optdb.opencl.type import opencl_type
from optdb.runtime.context import Context
from optdb.topo.translate import translate


@dataclass(frozen=True)
class DeviceGraph:
    """A device graph and its relation to the host graph."""

    fgraph: FunctionGraph
    lifted: LiftReport
    #: Maps a variable of the device graph to the host graph's variable with the same value, if this variable is known.
    origins: dict[Variable, Variable]


class Origins:
    """Tracks a graph's variables while they are replaced, so that two graphs can be compared step by step."""

    def __init__(self, of: dict[Variable, Variable]) -> None:
        self.of = of

    def on_lifted(self, fgraph: FunctionGraph, pairs: Iterable[tuple[Variable, Variable]]) -> None:
        """Record the replacements of a lifted graph, given as pairs of old and new variables."""
        for old, new in pairs:
            if old in self.of:
                self.of.setdefault(new, self.of[old])

    def on_change_input(
        self, fgraph: FunctionGraph, node: Any, i: int, old: Variable, new: Variable, reason: Any = None
    ) -> None:
        self.on_lifted(fgraph, [(old, new)])


@without_test_values()
def device_graph(
    source: FunctionGraph,
    context_name: Hashable,
    placed: Collection[Variable],
    updates: dict[int, int],
    mutable: Collection[Variable],
) -> DeviceGraph:
    """Copy a compiled function's optimized graph for a device; the inputs in `placed` are on the device.

    `updates` maps the index of an output to the index of the input that it updates. Inputs in `mutable` may be
    overwritten.
    """
    in_place = {node for var in overwritten_by_user(source) for node in nodes_in_place(source, var)}
    inputs, outputs, origins = _with_transfers(source, context_name, placed, in_place)
    next_on_device = {index for index, number in updates.items() if source.inputs[number] in placed}
    for index in next_on_device:
        outputs[index] = as_opencl_variable(outputs[index], context_name)
    lift, *later = _phases()
    with optimizing():
        lifting = FunctionGraph(inputs, outputs, clone=False)
        lifting.attach_feature(origins)
        lift.optimize(lifting)
        fgraph, origins = _without_transfers(lifting, origins, updates, next_on_device)
        protected = [new for var, new in zip(source.inputs, fgraph.inputs, strict=True) if var not in mutable]
        fgraph.attach_feature(Supervisor(protected))
        for phase in later:
            # Skip the host's fusion, since fused nodes do not overwrite inputs.
            if not (in_place and phase.name == _FUSION):
                phase.optimize(fgraph)
        called_with = [not isinstance(var, SharedVariable) for var in source.inputs]
        _copy_aliased_updates(fgraph, updates, set(itertools.compress(fgraph.inputs, called_with)))
    for new, old in zip(fgraph.outputs, source.outputs, strict=True):
        origins.of.setdefault(new, without_copies(old))
    final_origins = {var: origin for var, origin in origins.of.items() if var in fgraph.variables}
    lifted = lift_reports(lifting)[-1]
    _warn_of_refused_inputs(source.inputs, context_name, lifted)
    return DeviceGraph(fgraph, lifted, final_origins)


def _warn_of_refused_inputs(inputs: Iterable[Variable], context_name: Hashable, lifted: LiftReport) -> None:
    """Warn if no node runs on the device because the device does not support an input."""
    if any(node.lifter is not None for node in lifted.nodes):
        return
    reason = next(filter(None, (_refusal(var, context_name) for var in inputs)), None)
    if reason is not None:
        warnings.warn(f"All nodes of the function run on the host: {reason}", stacklevel=caller_level())


def _refusal(var: Variable, context_name: Any) -> str | None:
    return OPENCL.unsupported_reason(var.type.dtype, context_name) if is_host_array(var) else None


def _with_transfers(
    source: FunctionGraph, context_name: Hashable, placed: Collection[Variable], in_place: Collection[Apply]
) -> tuple[list[Variable], list[Variable], Origins]:
    """Copy a graph, with in-place ops only at the nodes in `in_place`; return the inputs, outputs and origins."""
    inputs = {
        var: opencl_type(var.type.dtype, var.type.broadcastable, context_name)(name=var.name)
        if var in placed
        else var.clone()
        for var in source.inputs
    }
    for var, new in inputs.items():
        if _refusal(var, context_name) is not None:
            new.tag.target = context_name  # the report on the lifted graph gives the reason
    on_host = {var: HostFromOpenCL()(new) if var in placed else new for var, new in inputs.items()}
    copies = plain_copy(source.toposort(), on_host, PLAIN, in_place)
    outputs = [copies.setdefault(var, var.clone()) for var in map(without_copies, source.outputs)]
    origins = Origins({new: old for old, new in (*copies.items(), *inputs.items())})
    return list(inputs.values()), outputs, origins


def _without_transfers(
    lifted: FunctionGraph, origins: Origins, updates: dict[int, int], next_on_device: Collection[int]
) -> tuple[FunctionGraph, Origins]:
    """Copy a lifted graph with its outputs on the device, except for next values of host inputs."""
    outputs = [
        var if index in updates and index not in next_on_device else _without_transfer(var)
        for index, var in enumerate(lifted.outputs)
    ]
    outputs = _copy_aliased_outputs(outputs, lifted.inputs, updates)
    clones = clone_get_equiv(lifted.inputs, outputs)
    fgraph = FunctionGraph([clones[var] for var in lifted.inputs], [clones[var] for var in outputs], clone=False)
    fgraph.update_mapping = updates
    copied = Origins({clones[var]: origin for var, origin in origins.of.items() if var in clones})
    fgraph.attach_feature(copied)
    return fgraph, copied


#: Rewriters to exclude, since only sizes and indices remain on the host.
_LEFT_OUT = ("inplace_elemwise_opt",)
#: Theano's name for the rewriter that fuses nodes that stay on the host.
_FUSION = "elemwise_fusion"


def _phases() -> list[Optimizer]:
    position = compile_db().__position__
    whole = translate(compile_db().query(Query(include=["fast_run", TAG], exclude=_LEFT_OUT)))
    return [phase for phase in whole if position.get(phase.name, 0) >= POSITION]


def _without_transfer(var: Variable) -> Variable:
    """Return the device variable from which `var` was downloaded; return any other variable unchanged."""
    return var.owner.inputs[0] if var.owner is not None and isinstance(var.owner.op, HostFromOpenCL) else var


def _copy_aliased_outputs(
    outputs: Sequence[Variable], inputs: Sequence[Variable], updates: dict[int, int]
) -> list[Variable]:
    """Copy outputs whose memory changes when next values overwrite current values."""
    changing = {inputs[number] for number in updates.values()}
    taken: set[Variable] = set()
    copied = []
    for index, var in enumerate(outputs):
        root = view_root(var)
        if index in updates:
            is_unchanged = root is inputs[updates[index]]
            is_aliased = root in taken or (root.owner is None and not is_unchanged)
            copied.append(deep_copy_op(var) if is_aliased else var)
            taken.add(root)
        else:
            copied.append(deep_copy_op(var) if root in changing else var)
    return copied


def _copy_aliased_updates(fgraph: FunctionGraph, updates: dict[int, int], arguments: set[Variable]) -> None:
    """Copy next values that share memory with each other or with an argument that a node overwrites.

    The optimizer may have merged two copies into one. An overwritten argument belongs to the caller or is reused by the
    next call.
    """
    taken: set[Variable] = set()
    for index, number in updates.items():
        var = fgraph.outputs[index]
        others = arguments - {fgraph.inputs[number]}
        if view_root(var) in taken or not others.isdisjoint(may_lie_in(var)):
            var = deep_copy_op(var)
            fgraph.change_input("output", index, var, reason="updated values share no memory")
        taken.add(view_root(var))


#: Ops that the device runs on scalars.
_ARITHMETIC = (ops.Elemwise, ops.DimShuffle, ops.CAReduce, DeepCopyOp)
#: Ops that the device also runs on integer arrays.
_OF_ARRAYS = (ops.Subtensor, ops.Reshape, ops.Rebroadcast, ops.SpecifyShape, ops.Join, ops.Split, ops.MaxAndArgmax)


def overwritten_by_user(fgraph: FunctionGraph) -> set[Variable]:
    """Return the inputs that the user's own ops overwrite."""
    return {var for var in fgraph.inputs if is_overwritten_by_user(var) and nodes_in_place(fgraph, var)}


def belongs_on_device(fgraph: FunctionGraph, var: Variable, context: Context) -> bool:
    """Return whether an input of a graph belongs on the device."""
    if not is_host_array(var) or context.unsupported_reason(var.type.dtype) is not None:
        return False
    if is_overwritten_by_user(var) and nodes_in_place(fgraph, var):
        return False
    users = [(user, i) for user, i in clients(fgraph, var) if not is_output(user)]
    # A generator's state is placed on the device if the device draws its random numbers.
    is_drawn_from = any(isinstance(user.op, mrg_uniform_base) and i == 0 for user, i in users)
    return _is_array_of_floats(var) or is_drawn_from or (bool(users) and _only_computed_with(fgraph, var))


def _only_computed_with(fgraph: FunctionGraph, var: Variable) -> bool:
    """Return whether all ops that depend on a variable can run on the device; users of float arrays are not checked."""
    seen, todo = {var}, [var]
    while todo:
        asked = todo.pop()
        allowed = (*_ARITHMETIC, *_OF_ARRAYS) if asked.type.ndim else _ARITHMETIC
        for user, i in clients(fgraph, asked):
            if is_output(user):
                continue
            if OPENCL.is_host_input(user.op, i) or not isinstance(user.op, allowed):
                return False
            # Outputs other than floating-point arrays may still be needed on the host, so check their clients.
            fresh = [out for out in user.outputs if out not in seen and not _is_array_of_floats(out)]
            seen.update(fresh)
            todo += fresh
    return True


def _is_array_of_floats(var: Variable) -> bool:
    return bool(var.type.ndim) and var.type.dtype.startswith(("float", "complex"))
