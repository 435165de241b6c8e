"""Copies a function's nodes, and the inner functions of its loops, to execute them while a tracer listens.

A copy has its own variables, cells and thunks, and its kernels run in the replacement context. Device nodes run
normally, and `host_steps` executes host nodes symbolically. In each step, a loop's copy calls a `Within` object instead
of the loop's inner function.
"""

from __future__ import annotations

import collections
import copy
import functools
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import MappingProxyType
from typing import Any, cast

import numpy as np

from optdb.codegen.kernels.programs import one_program
from optdb.device.export.walking import as_host_array, in_order, is_open, on_host
from optdb.device.plans.linked import LinkedFunction, Node, ValueId
from optdb.host.api.control_flow import Scan, scan_of
from optdb.host.api.graph import Apply, Constant, PureOp, Variable
from optdb.host.api.scans import inner_function, thunk_around
from optdb.host.theano.functions.compiled import Container
from optdb.opencl.aliasing import AliasSets
from optdb.opencl.exporting.host_steps import device_counterpart, follow
from optdb.opencl.linking.nodes import SHAPES, is_foreign, on_device, touches_device
from optdb.opencl.linking.planned_vm import PlannedVM, applies, as_variables
from optdb.opencl.ops.linalg import OpenCLOnHost, OpenCLRequire
from optdb.opencl.registry import contexts
from optdb.opencl.transfers import HostFromOpenCL, OpenCLFromHost
from optdb.opencl.type import without_zeros
from optdb.runtime import arrays
from optdb.runtime.arrays import Array
from optdb.runtime.context import Context
from optdb.runtime.deferred import DeferredArray, FromDevice, ValuesUnknown
from optdb.runtime.dispatch import listened
from optdb.runtime.recording import Untraceable
from optdb.runtime.sizes import SymInt, SymIntVector

Cells = dict[Variable, list[Any]]


@contextmanager
def copied_in(linked: LinkedFunction, context_name: Hashable, context: Context) -> Iterator[LinkedFunction]:
    """Replace a named context with `context`, and return a copy of a function with all its arrays in `context`.

    Raises Untraceable if the host reads a device array, or if a loop cannot be traced.
    """
    _require_all_lifted(linked)
    with contexts.substituted(context_name, context):
        yield _Copying(context_name, context).copied(linked)


def _require_all_lifted(linked: LinkedFunction) -> None:
    names = (_step_on_host(node.op) for node in applies(linked))
    left = collections.Counter(name for name in names if name is not None)
    if left:
        named = ", ".join(name if count == 1 else f"{name} ({count} times)" for name, count in left.items())
        raise Untraceable(
            f"a file cannot contain steps that the host computes from device arrays: {named}. Compute them in a "
            "separate function before the call, and pass the results as arguments"
        )


def _step_on_host(op: PureOp) -> str | None:
    """If an op makes the host read device arrays, return a name for the op, else None."""
    if isinstance(op, OpenCLOnHost):
        return str(op.op)
    if not isinstance(op, OpenCLRequire):
        return None
    return "the check of Solve" if op.solution else "the check of Cholesky, which has none with on_error='nan'"


class _Copying:
    def __init__(self, context_name: Hashable, context: Context) -> None:
        self._context_name = context_name
        self._context = context

    def copied(self, linked: LinkedFunction, is_inner: bool = False) -> LinkedFunction:
        """Return a copy of a function whose nodes have their own variables, cells and thunks."""
        nodes, ours = _twins(applies(linked))
        pairs = zip(nodes, applies(linked), strict=True)
        loops = {twin: Within(*self._inner(node)) for twin, node in pairs if isinstance(node.op, Scan)}
        inputs = as_variables(linked.inputs)
        outputs = [ours.get(var, var) for var in as_variables(linked.outputs)]
        variables = dict.fromkeys((*inputs, *(x for node in nodes for x in (*node.inputs, *node.outputs)), *outputs))
        cells = {var: [var.data if isinstance(var, Constant) else None] for var in variables}
        thunks = thunks_of(nodes, cells, loops)
        # In a loop, a step may overwrite the memory that an earlier step used.
        sets = AliasSets(nodes)
        overwritten = variables.keys() if is_inner else sets.of(sets.overwritten)
        steps = (functools.partial(self._step, cells, overwritten, node, thunk) for node, thunk in zip(nodes, thunks))
        return LinkedFunction(
            nodes=[Node(node, node.inputs, node.outputs, step) for node, step in zip(nodes, steps)],
            cells=cast("Mapping[ValueId, list[Any]]", cells),
            inputs=list(inputs),
            outputs=list(outputs),
            contexts={var: self._context for var in variables if on_device(var)},
            updates={var: ours.get(cast("Variable", x), x) for var, x in linked.updates.items()},
        )

    def _inner(self, node: Apply) -> tuple[Any, LinkedFunction]:
        op = scan_of(node)
        if op.as_while:
            raise Untraceable(
                f"{op} has a stop condition, which the host would have to read after each step. Use a fixed number "
                "of steps"
            )
        function = inner_function(node)
        if not isinstance(function.fn, PlannedVM):
            raise Untraceable(f"the inner function of {op} runs without plans: compile it with the default linker")
        if function.fn.linked.branches.conditions:
            raise Untraceable(f"the inner function of {op} has branches (ifelse), which a file cannot contain")
        return function, self.copied(function.fn.linked, is_inner=True)

    def _step(self, cells: Cells, overwritten: Any, node: Apply, thunk: Callable[[], Any]) -> None:
        try:
            self._compute(cells, overwritten, node, thunk)
        except Untraceable as error:
            raise Untraceable(_named(node, str(error))) from None
        except ValuesUnknown as error:
            reason = f"{error}, but the node depends on them, for example as an index"
            cure = "Compute them before the call, and pass them as an argument"
            raise Untraceable(_named(node, f"{reason}. {cure}")) from error
        except Exception as error:
            raise Untraceable(_named(node, f"{type(error).__name__}: {error}")) from error

    def _compute(self, cells: Cells, overwritten: Any, node: Apply, thunk: Callable[[], Any]) -> None:
        values = [cells[var][0] for var in node.inputs]
        if isinstance(node.op, HostFromOpenCL):
            # Copy the array, since a later node may overwrite it and the host needs the current values.
            moved = in_order(self._context, values[0], True) if node.inputs[0] in overwritten else values[0]
            results: Sequence[Any] = [on_host(moved)]
        elif isinstance(node.op, OpenCLFromHost) and is_open(values[0]):
            results = [self._brought(values[0], node.inputs[0].type.dtype)]
        elif isinstance(node.op, SHAPES) or (not touches_device(node) and any(map(is_open, values))):
            results = self._followed(node, values)
        elif is_foreign(node):
            raise Untraceable("it launches kernels itself, in make_thunk, so its commands cannot be recorded")
        else:
            self._run(cells, node, thunk)
            return
        for var, value in zip(node.outputs, results, strict=True):
            cells[var][0] = value

    def _run(self, cells: Cells, node: Apply, thunk: Callable[[], Any]) -> None:
        if not touches_device(node):
            with listened(None):
                thunk()
        elif isinstance(node.op, Scan):
            _settle(cells, node)
            with without_zeros():
                thunk()
        else:
            thunk()

    def _followed(self, node: Apply, values: Sequence[Any]) -> Sequence[Any]:
        """Return a host node's results for inputs whose values are unknown until a call."""
        try:
            return follow(node, values)
        except Untraceable:
            counterpart = device_counterpart(node, self._context_name)
            if counterpart is None:
                raise
        twin, count = counterpart
        cells = {var: [value] for var, value in zip(twin.inputs, values, strict=True)}
        for var in twin.inputs[:count]:
            cells[var][0] = self._brought(cells[var][0], var.type.dtype)
        cells |= {var: [None] for var in twin.outputs}
        (thunk,) = thunks_of([twin], cells)
        thunk()
        return [on_host(cells[var][0]) for var in twin.outputs]

    def _brought(self, value: Any, dtype: str) -> Array:
        if isinstance(value, DeferredArray) and isinstance(value.source, FromDevice):
            # Copy the array, since the receiving node may overwrite it.
            return in_order(self._context, value.source.array, True)
        return arrays.from_host(self._context, as_host_array(value, dtype))


def _twins(nodes: Sequence[Apply]) -> tuple[list[Apply], dict[Variable, Variable]]:
    """Return copies of nodes with their own outputs, and a map from the original outputs to their copies."""
    ours: dict[Variable, Variable] = {}
    twins = []
    for node in nodes:
        outputs = [var.clone() for var in node.outputs]
        twin = Apply(node.op, [ours.get(var, var) for var in node.inputs], outputs)
        twin.tag = copy.copy(node.tag)
        ours.update(zip(node.outputs, outputs, strict=True))
        twins.append(twin)
    return twins, ours


def _settle(cells: Cells, node: Apply) -> None:
    """Replace the symbolic counts of steps and of kept values with numbers, because the trace unrolls the loop."""
    op = scan_of(node)
    for var in node.inputs[: op.nit_sot_arg_offset + op.n_nit_sot]:
        cell = cells[var]
        if isinstance(cell[0], SymInt | SymIntVector):
            cell[0] = np.asarray(cell[0]).astype(var.type.dtype)


def _named(node: Apply, why: str) -> str:
    return why if str(node.op) in why else f"{node.op}: {why}"


def thunks_of(
    nodes: Sequence[Apply], cells: dict[Variable, list[Any]], loops: Mapping[Apply, Within] = MappingProxyType({})
) -> list[Any]:
    """Return thunks that run nodes on `cells`; `loops` maps loops to replacements for their inner functions."""
    computed = {var: [False] for var in cells}

    def thunk_of(node: Apply) -> Any:
        if node in loops:
            return thunk_around(loops[node], node, cells, computed)
        return node.op.make_thunk(node, cells, computed, [], impl="py")

    with one_program():
        return [thunk_of(node) for node in nodes]


class Within:
    """Replaces a loop's inner function, and implements the part of ``theano.Function``'s interface that a loop uses."""

    def __init__(self, function: Any, linked: LinkedFunction) -> None:
        self.maker = function.maker
        self._nodes = linked.nodes
        self.input_storage = [Container(var, linked.cells[var]) for var in as_variables(linked.inputs)]
        self.output_storage = [Container(var, linked.cells[var]) for var in as_variables(linked.outputs)]
        # The loop itself puts the memory of each output into the output's cell.
        io_cell_ids = {id(linked.cells[var]) for var in (*linked.inputs, *linked.outputs)}
        made = [linked.cells[var] for node in linked.nodes for var in node.outputs]
        self._between = [cell for cell in made if id(cell) not in io_cell_ids]

    def fn(self) -> None:
        """Run one step of the loop."""
        # Each step computes new values, whose memory the trace assigns.
        for cell in self._between:
            cell[0] = None
        for node in self._nodes:
            node.compute()

    def free(self) -> None:
        """Do nothing, since the trace releases the loop's values."""
