"""Traces a compiled function: each of its nodes once, with sizes for shapes, and nothing computed.

The nodes are copied first, and compiled for a context that replaces the function's own, of the wanted kind and
with empty caches: so launches for plain shapes stay out of a trace, and those of a trace out of the function. The
device's nodes run as usual, and a tracer records their commands; ``host_steps`` follows those of the host. At the end,
the next values of shared variables are written over the present ones.
"""

from __future__ import annotations

import collections
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from optdb.codegen.elements import ElementKernels
from optdb.device.plans.linked import LinkedFunction
from optdb.device.plans.updates import buffer_of, find_commit
from optdb.host.api.control_flow import Scan, scan_of
from optdb.host.api.graph import Apply, PureOp, Variable
from optdb.numpy_types import HostArray
from optdb.opencl.aliasing import exposed_variables
from optdb.opencl.exporting.copies import CopiedFunction, copied, thunks_of
from optdb.opencl.exporting.host_steps import device_counterpart, follow, is_open
from optdb.opencl.kernel_ops import compile_kernels
from optdb.opencl.linking.nodes import SHAPES, is_foreign, on_device, touches_device
from optdb.opencl.linking.planned_vm import applies
from optdb.opencl.ops.linalg import OpenCLRequire
from optdb.opencl.ops.on_host import OpenCLOnHost
from optdb.opencl.registry import contexts
from optdb.opencl.transfers import HostFromOpenCL, OpenCLFromHost
from optdb.opencl.type import without_zeros
from optdb.runtime import arrays
from optdb.runtime.arrays import Array
from optdb.runtime.commands import listened, upload
from optdb.runtime.context import Context
from optdb.runtime.deferred import DeferredArray, FromArgument, FromDevice, FromNumbers, ValuesUnknown
from optdb.runtime.device_profiles import DeviceKind
from optdb.runtime.expressions import ArgumentNumber, AxisLength, ComputeUnits
from optdb.runtime.sizes import SymInt, SymIntVector, example_value
from optdb.runtime.tracing import OutputSpec, Trace, Tracer, Untraceable

__all__ = ["InputSpec", "trace"]

#: The compute units of a GPU, where the device at hand is none.
USUAL_UNITS = 64


@dataclass(frozen=True)
class InputSpec:
    """An input of a function, as the file knows it."""

    #: 'argument' if the caller gives it, 'state' if it is a shared value.
    kind: str
    #: Among the arguments of the function, or among the shared values of the file.
    number: int
    #: In the example.
    shape: tuple[int, ...]
    #: Of an argument that is one number on the host.
    value: Any = None


class _Traced(Context):
    """A context that replaces another one, and records the dtypes that kernels ask for."""

    def __init__(self, context: Context, device_kind: DeviceKind, compute_units: Any) -> None:
        vars(self).update(vars(context))
        self.profile = context.profile.for_any_driver(device_kind, compute_units)
        self.kept = {}
        self.asked: set[str] = set()

    def unsupported_reason(self, dtype: DTypeLike) -> str | None:
        reason = super().unsupported_reason(dtype)
        if reason is None:
            self.asked.add(np.dtype(dtype).name)
        return reason


def trace(
    linked: LinkedFunction,
    context_name: Hashable,
    entries: Mapping[Variable, InputSpec],
    returned: int,
    device_kind: DeviceKind,
    fixed: bool,
) -> Trace:
    """Trace a function, all of whose arrays are in one context: for the example's shapes alone, if these are `fixed`.

    `entries` say what its inputs are. The first `returned` outputs are for the caller; the others are next values.
    A function with a step that a trace cannot hold raises `Untraceable`.
    """
    _all_lifted(linked)
    context = contexts.get(context_name)
    profile = context.profile
    units = profile.compute_units if device_kind == profile.device_kind else USUAL_UNITS
    result = Trace(device_kind, units)
    stand_in = _Traced(context, device_kind, units if fixed else result.rules.symbol(units, ComputeUnits()))
    tracer = Tracer(result, stand_in)
    with contexts.substituted(context_name, stand_in):
        walk = _Walk(linked, stand_in, context_name, tracer, fixed)
        with tracer.following():
            walk.enter(entries)
            walk.run()
            walk.leave(entries, returned)
    result.flags = {name for name in stand_in.asked if name in ("float64", "complex128", "int64", "uint64")}
    return result


def _all_lifted(linked: LinkedFunction) -> None:
    """Raise `Untraceable` if the host computes with an array of the device."""
    names = (_step_on_host(node.op) for node in applies(linked))
    left = collections.Counter(name for name in names if name is not None)
    if left:
        named = ", ".join(name if count == 1 else f"{name} ({count} times)" for name, count in left.items())
        raise Untraceable(
            f"steps on arrays of the device stay on the host, and cannot be in a file: {named}. Compute what needs "
            "them in a function of its own, ahead of the call, and pass the result as an argument"
        )


def _step_on_host(op: PureOp) -> str | None:
    """Return the name of a step for which the host reads arrays of the device; None if it is another one."""
    if isinstance(op, OpenCLOnHost):
        return str(op.op)
    if not isinstance(op, OpenCLRequire):
        return None
    return "the check of Solve" if op.solution else "the check of Cholesky, which has none with on_error='nan'"


class _Walk:
    """A trace being made."""

    def __init__(
        self, linked: LinkedFunction, context: Context, context_name: Hashable, tracer: Tracer, fixed: bool
    ) -> None:
        self._linked = copied(linked, self._step)
        self._context = context
        self._context_name = context_name
        self._tracer = tracer
        self._trace = tracer.trace
        self._fixed = fixed
        self._lasting = _lasting_variables(self._linked)
        self._copying: dict[tuple[str, int], tuple[ElementKernels, Any]] = {}

    def enter(self, entries: Mapping[Variable, InputSpec]) -> None:
        """Put the stand-ins for the inputs into their cells."""
        arguments = [entry for entry in entries.values() if entry.kind == "argument"]
        self._trace.arguments = [()] * len(arguments)
        for var in self._linked.inputs:
            entry, cell = entries[var], self._linked.cells[var]
            if entry.kind == "state":
                array = self._tracer.state(self._context.queue, entry.number, entry.shape, var.type.dtype)
                cell[0] = array if on_device(var) else _on_host(array)
                continue
            shape = tuple(
                length if self._fixed or fixed else self._trace.rules.symbol(length, AxisLength(entry.number, axis))
                for axis, (length, fixed) in enumerate(zip(entry.shape, var.type.broadcastable, strict=True))
            )
            self._trace.arguments[entry.number] = shape
            cell[0] = self._argument(var, entry, shape)

    def _argument(self, var: Variable, entry: InputSpec, shape: tuple[Any, ...]) -> Any:
        argument = DeferredArray(shape, np.dtype(var.type.dtype), FromArgument(entry.number))
        if on_device(var):
            return arrays.from_host(self._context, argument)
        if entry.value is None:
            return argument
        return self._trace.rules.symbol(entry.value, ArgumentNumber(entry.number))

    def run(self) -> None:
        """Go through the nodes."""
        for thunk in self._linked.thunks:
            thunk()

    def _step(self, cells: Mapping[Variable, list[Any]], node: Apply, thunk: Callable[[], Any]) -> None:
        """Do one node, of the function or of one inside of a loop."""
        try:
            self._follow(cells, node, thunk)
        except Untraceable as error:
            raise Untraceable(_named(node, str(error))) from None
        except ValuesUnknown as error:
            reason = f"{error}, and the node chooses by them what it does, as a number that is an index does"
            cure = "Compute them ahead of the call, and pass them as an argument"
            raise Untraceable(_named(node, f"{reason}. {cure}")) from error
        except Exception as error:
            raise Untraceable(_named(node, f"{type(error).__name__}: {error}")) from error

    def _follow(self, cells: Mapping[Variable, list[Any]], node: Apply, thunk: Callable[[], Any]) -> None:
        values = [cells[var][0] for var in node.inputs]
        outputs = [cells[var] for var in node.outputs]
        if isinstance(node.op, HostFromOpenCL):
            (x,) = values
            if node.inputs[0] not in self._lasting:
                x = self._in_order(x, always=True)
            outputs[0][0] = _on_host(x)
            return
        if isinstance(node.op, OpenCLFromHost) and is_open(values[0]):
            outputs[0][0] = self._brought(values[0], node.inputs[0].type.dtype)
            return
        asks_for_shape = isinstance(node.op, SHAPES)
        if asks_for_shape or not touches_device(node):
            if not asks_for_shape and not any(map(is_open, values)):
                with listened(None):
                    thunk()
                return
            for cell, value in zip(outputs, self._followed(node, values), strict=True):
                cell[0] = value
            return
        if is_foreign(node):
            raise Untraceable("it launches kernels by itself, of which nothing is known")
        if isinstance(node.op, Scan):
            self._settle(cells, node)
            with without_zeros():
                thunk()
            return
        thunk()

    def _followed(self, node: Apply, values: Sequence[Any]) -> Sequence[Any]:
        """Return the results of a host node for values that the calls of the file give."""
        try:
            return follow(node, values)
        except Untraceable:
            results = self._on_the_device(node, values)
            if results is None:
                raise
            return results

    def _settle(self, cells: Mapping[Variable, list[Any]], node: Apply) -> None:
        """Give a loop plain numbers of steps and of values to keep: the trace unrolls its steps."""
        op = scan_of(node)
        for var in node.inputs[: op.nit_sot_arg_offset + op.n_nit_sot]:
            cell = cells[var]
            if isinstance(cell[0], SymInt | SymIntVector):
                cell[0] = np.asarray(cell[0]).astype(var.type.dtype)

    def _on_the_device(self, node: Apply, values: Sequence[Any]) -> list[DeferredArray] | None:
        """Return the results of a host node, computed on the device; None if the device has no counterpart."""
        counterpart = device_counterpart(node, self._context_name)
        if counterpart is None:
            return None
        twin, count = counterpart
        cells = {var: [value] for var, value in zip(twin.inputs, values, strict=True)}
        for var in twin.inputs[:count]:
            cells[var][0] = self._brought(cells[var][0], var.type.dtype)
        cells |= {var: [None] for var in twin.outputs}
        (thunk,) = thunks_of([twin], cells)
        thunk()
        return [_on_host(cells[var][0]) for var in twin.outputs]

    def _brought(self, value: Any, dtype: str) -> Array:
        """Return an array of the device with a value that is not known yet."""
        if isinstance(value, DeferredArray) and isinstance(value.source, FromDevice):
            # Not the array itself: the node that gets this one may overwrite it.
            return self._in_order(value.source.array, always=True)
        return arrays.from_host(self._context, _as_host_array(value, dtype))

    def leave(self, entries: Mapping[Variable, InputSpec], returned: int) -> None:
        """Note the results, and write next values over the present ones."""
        for var, value in zip(self._linked.outputs, self._commit(entries, returned)):
            self._trace.outputs.append(OutputSpec(self._output(value), np.dtype(var.type.dtype)))

    def _commit(self, entries: Mapping[Variable, InputSpec], returned: int) -> list[Any]:
        """Write the next values of shared variables over the present ones; return the results, which that spares."""
        linked = self._linked
        states: dict[Variable, Array] = {}
        for var in linked.inputs:
            if entries[var].kind == "state":
                array = _array_of(linked.value(var))
                assert array is not None, var
                states[var] = array
        for var in linked.updates:
            if var not in states:
                raise Untraceable(f"the argument {var} gets another value by each call; make it a shared variable")
        following: dict[Variable | int, Any] = {var: linked.value(later) for var, later in linked.updates.items()}
        values = dict(following)
        values.update((number, linked.value(var)) for number, var in enumerate(linked.outputs[:returned]))
        values = {key: value if (array := _array_of(value)) is None else array for key, value in values.items()}
        updates = [(var, states[var], values[var]) for var in linked.updates]
        commit = find_commit(updates, values.items(), buffer_of, self._is_in_place)
        written = set(commit.written)
        for key in commit.aliased:
            if key in written or key not in following:
                values[key] = self._in_order(values[key], always=True)
        for var in commit.written:
            self._write(var, states[var], values[var])
        return [values[number] for number in range(returned)]

    def _output(self, value: Any) -> Any:
        if isinstance(value, Array):
            return self._tracer.layout(value)
        return value if is_open(value) else np.array(value)

    def _is_in_place(self, present: Array, following: Any) -> bool:
        """Tell whether a next value was computed in place of the present one."""
        if not present.size or buffer_of(following) != buffer_of(present):
            return False
        return bool(following.shape == present.shape and not following.offset and following.flags.c_contiguous)

    def _write(self, var: Variable, present: Array, value: Any) -> None:
        """Write the next value of a shared variable over the present one."""
        shape = tuple(getattr(value, "shape", ()))
        if shape != tuple(present.shape):
            raise Untraceable(
                f"the shared variable {var} of shape {present.shape} gets a value of another shape, "
                f"{tuple(map(example_value, shape))}; in a file each has the same shape for good"
            )
        if isinstance(value, Array):
            arrays.copy_bytes(present, self._in_order(value))
        elif present.size:
            upload(present.queue, present.base_data, 0, _as_host_array(value, var.type.dtype))

    def _in_order(self, array: Array, always: bool = False) -> Array:
        """Return an array in C order without gaps: a copy if it is not, or always."""
        if array.flags.c_contiguous:
            return arrays.copy(array) if always else array
        result = arrays.empty(self._context, array.shape, array.dtype)
        kind = array.dtype.name, array.ndim
        if kind not in self._copying:
            elements = ElementKernels.copying(*kind)
            self._copying[kind] = elements, compile_kernels(elements.kernels(), self._context, "a copy")
        elements, kernels = self._copying[kind]
        elements.launch(kernels, self._context, array.shape, [array, result])
        return result


def _lasting_variables(linked: CopiedFunction) -> set[Variable]:
    """Return the variables of a function whose values are what they were until the call's end.

    Others are overwritten in place. Those inside of loops are not among them: a step may write where another one did.
    """
    return {var for node in linked.nodes for var in (*node.inputs, *node.outputs)} - exposed_variables(
        linked.nodes, (), ()
    )


def _on_host(array: Array) -> DeferredArray:
    """Return an array of the device as a value of the host."""
    return DeferredArray(array.shape, array.dtype, FromDevice(array))


def _array_of(value: Any) -> Array | None:
    """Return the array of the device that a value is, or is to be a copy of."""
    if isinstance(value, DeferredArray) and isinstance(value.source, FromDevice):
        return value.source.array
    return value if isinstance(value, Array) else None


def _as_host_array(value: Any, dtype: str) -> DeferredArray | HostArray:
    """Return a value of the host, which may be open, as an array in C order."""
    if isinstance(value, DeferredArray):
        return value
    if isinstance(value, SymIntVector):
        return DeferredArray(value.shape, np.dtype(dtype), FromNumbers(dtype, tuple(value)))
    if isinstance(value, SymInt):
        return DeferredArray((), np.dtype(dtype), FromNumbers(dtype, (value,)))
    return np.asarray(value, dtype, order="C")


def _named(node: Apply, why: str) -> str:
    return why if str(node.op) in why else f"{node.op}: {why}"
