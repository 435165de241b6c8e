"""Virtual machines for functions with device arrays, and the conversion of functions to the form that plans use."""

from __future__ import annotations

import copy
import functools
import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from typing import Any, cast

import numpy as np

from optdb.device.plans import LinkedFunction, Node, PlannedMachine, PlanOptions, ValueId
from optdb.device.plans.plan import provided_liveness
from optdb.device.plans.recording import Recording
from optdb.device.plans.updates import CellPairs, advance
from optdb.host.api.config import config
from optdb.host.api.control_flow import IfElse, Scan
from optdb.host.api.graph import Apply, Constant, Variable, op_of
from optdb.host.api.linking import VM, as_thunk, raise_with_op
from optdb.host.api.slots import viewed_slots
from optdb.host.theano.functions.call_memory import CallMemory
from optdb.opencl.aliasing import AliasSets, overwriting
from optdb.opencl.kernel_ops.base import check_kinds, check_lengths, promised_axes
from optdb.opencl.linking.nodes import (
    PURE,
    SHAPED,
    SHAPES,
    is_foreign,
    is_repeatable,
    on_device,
    overwrites,
)
from optdb.opencl.type import without_zeros
from optdb.runtime.arrays import Array
from optdb.runtime.commands import HostCall
from optdb.runtime.dispatch import HeldCommands, enqueue, listened, listening
from optdb.runtime.recording import ArrayLayout, Recorder
from optdb.runtime.sigint import commit_point, defer_sigint

Cells = Mapping[Variable, list[Any]]


class PlannedVM(PlannedMachine, VM):
    """A Theano virtual machine for a function that runs with plans."""

    # The VM must not drop the outputs, since the plan may own them.
    allow_gc = False

    def __init__(self, linked: LinkedFunction, thunks: Sequence[Callable[[], Any]]) -> None:
        VM.__init__(self, applies(linked), list(thunks), linked.clear_before)
        # The VM stores the inputs' next values itself.
        self.need_update_inputs = False
        PlannedMachine.__init__(self, linked)

    @property
    def storage_map(self) -> dict[Variable, list[Any]]:
        """Empty, because plans own the storage cells; `Function.free` must not clear these cells."""
        return {}

    @storage_map.setter
    def storage_map(self, cells: dict[Variable, list[Any]]) -> None:
        """Do nothing, since the VM already has its storage cells."""

    def call_memory(self) -> CallMemory | None:
        """Return the memory that the latest recorded call uses; None if no call was recorded."""
        return None if self.last_recording is None else recording_memory(self.last_recording)


class CommittingVM(VM):
    """Mixin for a Theano VM whose nodes overwrite no shared variable: it stores next values at the end of a call."""

    #: A function that the next call runs once, after everything else that may raise; if the function raises, no next
    #: value is stored.
    before_commit: Callable[[], None] | None
    updates: Mapping[Variable, Variable]
    advancing: CellPairs
    output_cells: Sequence[list[Any]]

    def __call__(self, *args: Any, **options: Any) -> list[Any]:
        """Run the function, store the inputs' next values, and return the outputs."""
        return defer_sigint(self._compute_and_commit, args, options)

    def _compute_and_commit(self, args: tuple[Any, ...], options: dict[str, Any]) -> list[Any]:
        super().__call__(*args, **options)
        for (var, following), (_, cell) in zip(self.updates.items(), self.advancing, strict=True):
            check_next_value(var, following, cell[0])
        commit_point()
        before_commit, self.before_commit = self.before_commit, None
        if before_commit is not None:
            before_commit()
        # An output may be an input whose cell is about to receive the input's next value.
        outputs = [cell[0] for cell in self.output_cells]
        advance(self.advancing)
        return outputs


def committing(
    machine: VM, outputs: Sequence[Variable], updates: Mapping[Variable, Variable], cells: Mapping[Variable, list[Any]]
) -> VM:
    """Make one of Theano's VMs store the next values, as Theano's C loop does."""
    if not machine.need_update_inputs:
        return machine
    machine.__class__ = type(type(machine).__name__, (CommittingVM, type(machine)), {})
    assert isinstance(machine, CommittingVM)
    machine.need_update_inputs, machine.before_commit = False, None
    machine.updates, machine.output_cells = updates, [cells[var] for var in outputs]
    machine.advancing = [(cells[var], cells[following]) for var, following in updates.items()]
    return machine


def applies(linked: LinkedFunction) -> list[Apply]:
    """Return the Apply nodes of a linked function."""
    return [node.origin for node in linked.nodes]


def as_variables(values: Iterable[ValueId]) -> list[Variable]:
    """Return the given values as a list of variables; the cast is for the type checker."""
    return [cast("Variable", value) for value in values]


def link_function(
    nodes: Sequence[Apply],
    thunks: Sequence[Callable[[], Any]],
    cells: Cells,
    inputs: Sequence[Variable],
    outputs: Sequence[Variable],
    updates: Mapping[Variable, Variable],
    before: Mapping[Apply, Sequence[Apply]],
    frees: bool,
) -> LinkedFunction:
    """Convert a Theano function to the form that plans use.

    The nodes are in execution order. `updates` maps each input to its next value. `before` maps each node that
    overwrites values to the nodes that read these values. `frees` says whether storage cells are emptied as soon as
    their values are dead.
    """
    in_graph, as_computed = AliasSets(nodes), AliasSets(nodes, overwrites)
    fixed_places = in_graph.of([*outputs, *updates.values(), *in_graph.overwritten])
    number_of = {node: number for number, node in enumerate(nodes)}

    def aliases(var: Any) -> list[Variable]:
        sharing = as_computed.of([var, *as_computed.overwritten])
        return [alias for alias in sharing if alias.owner is not None and not on_device(alias)]

    return LinkedFunction(
        nodes=[_described(node, thunk, cells, fixed_places) for node, thunk in zip(nodes, thunks, strict=True)],
        cells=cast("Mapping[ValueId, list[Any]]", cells),
        inputs=list(inputs),
        outputs=list(outputs),
        updates=dict(cast("Mapping[ValueId, ValueId]", updates)),
        contexts={var: var.type.context for var in cells if on_device(var)},
        constants=frozenset(var for var in cells if isinstance(var, Constant)),
        exposed=as_computed.of([*inputs, *outputs, *as_computed.overwritten]),
        overwritten=in_graph.of(in_graph.overwritten),
        final=frozenset(number_of[node] for node in overwriting(nodes, inputs)),
        before={number_of[node]: [number_of[prior] for prior in priors] for node, priors in before.items()},
        frees=frees,
        options=_options,
        next_value_checks={
            var: functools.partial(check_next_value, var, following)
            for var, following in updates.items()
            if promised_axes([following])
        },
        aliases=aliases,
        describe=_described_value,
        explain=functools.partial(_raise_with_node, nodes, thunks, cells),
    )


def _options() -> PlanOptions:
    flags = config.optdb
    return PlanOptions(flags.merge_launches, flags.persistent_launches, flags.device_memory_fraction)


def _described(node: Apply, thunk: Callable[[], Any], cells: Cells, fixed_places: set[Variable]) -> Node:
    """Convert a node to the form that plans use; outputs in `fixed_places` must not be copied."""
    op = node.op
    compute, is_loop = thunk, isinstance(op, Scan)
    if is_foreign(node):
        compute = functools.partial(_compute_foreign, node, thunk, cells)
    elif is_loop:
        compute = functools.partial(_compute_loop, thunk)
    asks = getattr(op, "reads_tables_alone", None)
    views = [] if isinstance(op, SHAPED) else [out for out, _ in viewed_slots(node) if on_device(out)]
    return Node(
        node,
        node.inputs,
        node.outputs,
        compute,
        chosen=op_of(node, IfElse).n_outs if isinstance(op, IfElse) else 0,
        reads_shapes=isinstance(op, SHAPES),
        is_repeatable=is_repeatable(op),
        is_foreign=is_foreign(node),
        is_pure=isinstance(op, PURE),
        is_inplace=bool(getattr(op, "destroy_map", None)),
        is_loop=is_loop,
        reads_tables_alone=asks is not None and asks(node),
        copyable_views=[out for out in views if out not in fixed_places],
    )


def _compute_loop(thunk: Callable[[], Any]) -> None:
    """Run a loop; while recording, do not zero memory that its steps overwrite."""
    with without_zeros() if isinstance(listening(), Recorder) else nullcontext():
        thunk()


def _compute_foreign(node: Apply, thunk: Callable[[], Any], cells: Cells) -> None:
    """Run a node that launches its own kernels, which may ignore arrays' offsets, and check its results."""
    check_lengths(node.op, node.inputs, [cells[var][0] for var in node.inputs], promised_axes(node.inputs))
    enqueue(HostCall(f"{node.op} launches kernels itself"))
    for var in node.outputs:
        value = cells[var][0]
        if isinstance(value, Array) and value.offset:
            cells[var][0] = None
    thunk()
    check_kinds(node.op, node.outputs, [cells[var][0] for var in node.outputs])


def check_next_value(var: Variable, following: Variable, value: Any) -> None:
    """Raise ValueError, like Theano's Python linker, unless a next value has the lengths that its type requires."""
    check_lengths(f"the update of {var}", [following], [value])


def _raise_with_node(nodes: Sequence[Apply], thunks: Sequence[Callable[[], Any]], cells: Cells, number: int) -> None:
    """Reraise the current error with Theano's description of the node and its source line."""
    thunk = thunks[number]
    # The error message shows the values of inputs. Reading values on the device would enqueue commands that are held
    # back, which must not happen.
    listener = listening()
    held = listener.held if isinstance(listener, Recorder) else listener
    shown = _Unshown(thunk) if isinstance(held, HeldCommands) else thunk
    with listened(None):
        raise_with_op(nodes[number], shown, storage_map=cast("dict[Variable, list[Any]]", cells))


class _Unshown:
    """A stand-in for a thunk in an error message; its device inputs have shapes and strides but no values."""

    def __init__(self, thunk: Any) -> None:
        values = [cell[0] for cell in getattr(thunk, "inputs", ())]
        self.inputs = [[_Uncomputed(value) if isinstance(value, Array) else value] for value in values]
        self.outputs = getattr(thunk, "outputs", [])


class _Uncomputed:
    def __init__(self, array: Array) -> None:
        self.shape, self.strides, self.size = array.shape, array.strides, array.size

    def __str__(self) -> str:
        return "not computed yet"

    __repr__ = __str__


def _described_value(value: ValueId, layout: ArrayLayout) -> str:
    var = cast("Variable", value)
    what = f"{layout.dtype} {layout.shape}"
    by = "" if var.owner is None else f" by {var.owner.op}"
    return f"{var.name}, {what}{by}" if var.name else f"{what}{by}"


def chooser(node: Apply, cells: dict[Variable, list[Any]]) -> Callable[[], None]:
    """Return a thunk for a node with branches; the taken branch is computed before the thunk runs."""
    condition = cells[node.inputs[0]]
    op = op_of(node, IfElse)
    count, as_view = op.n_outs, op.as_view
    outputs = [cells[var] for var in node.outputs]
    branches = [[cells[var] for var in node.inputs[first : first + count]] for first in (1 + count, 1)]

    def choose() -> None:
        taken = bool(np.all(np.asarray(condition[0]) != 0))
        for out, cell in zip(outputs, branches[taken]):
            # As in Theano, the output may be a view of the first branch but not of the second.
            out[0] = cell[0] if taken and as_view else _copied(cell[0])

    return as_thunk(choose, [cells[var] for var in node.inputs], outputs)


def _copied(value: Any) -> Any:
    return value.copy() if isinstance(value, np.ndarray) else copy.deepcopy(value)


def recording_memory(recording: Recording) -> CallMemory:
    """Compute how much device memory a recorded call uses, from liveness and buffer assignment."""
    live = provided_liveness(recording)
    # The range of command indices for each node, counted as in `liveness`.
    spans, stop = [], 0
    for _, node, segment in recording.steps:
        start, stop = stop + 1, stop + 1 + len(segment.commands)
        spans.append((node, start, stop))
    change = [0] * (stop + 2)
    for memory, (first, last) in live.ranges.items():
        begin = min(first, stop)
        change[begin] += memory.nbytes
        change[min(last, stop) + 1] -= memory.nbytes
    bytes_at = list(itertools.accumulate(change))
    inputs = [var for var in recording.linked.inputs if var in recording.layouts]
    in_place = set(recording.io.inputs)
    return CallMemory(
        steps=[(node.origin, max(bytes_at[start : stop + 1])) for node, start, stop in spans],
        arguments=sum(_nbytes(recording.layouts[var]) for var in inputs if var in in_place),
        shared=sum(_nbytes(recording.layouts[var]) for var in inputs if var not in in_place),
        constants=sum(
            _nbytes(layout)
            for var, layout in recording.layouts.items()
            if var not in recording.linked.producers and var not in recording.linked.inputs
        ),
        unknown=0,
        separately=live.nbytes_without_reuse,
        buffers=live.nbytes(recording.io),
    )


def _nbytes(layout: ArrayLayout) -> int:
    return 0 if layout.memory is None else layout.memory.nbytes
