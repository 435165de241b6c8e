"""Traces a function by running each node once with symbolic sizes, without executing anything on the device.

The front end links the function in a context that replaces the original context. The caches of this context are empty,
so that it shares no launches with the original context.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from optdb.codegen.elements import ElementKernels, copied
from optdb.codegen.kernels import compile_kernels
from optdb.device.plans.linked import LinkedFunction, ValueId
from optdb.device.plans.updates import buffer_of, find_commit
from optdb.numpy_types import HostArray
from optdb.runtime import arrays
from optdb.runtime.arrays import Array
from optdb.runtime.calling import Argument
from optdb.runtime.context import Context
from optdb.runtime.deferred import DeferredArray, FromArgument, FromDevice, FromNumbers
from optdb.runtime.device_profiles import DeviceKind
from optdb.runtime.dispatch import upload
from optdb.runtime.expressions import ArgumentNumber, AxisLength, ComputeUnits
from optdb.runtime.recording import OutputSpec, Trace, Tracer, Untraceable
from optdb.runtime.sizes import SymInt, SymIntVector, example_value

#: The number of compute units that a trace assumes if it is made for a device kind other than the current device's.
USUAL_UNITS = 64
#: The dtypes that some devices lack, as files name them.
_OPTIONAL_DTYPES = frozenset({"float64", "complex128", "int64", "uint64"})


@dataclass(frozen=True, eq=False)
class Held:
    """A shared variable."""

    #: Identifies the variable in all functions that share it.
    identity: Hashable
    name: str | None
    dtype: str
    broadcastable: tuple[bool, ...]
    value: Callable[[], Any]


@dataclass(frozen=True, eq=False)
class InputSpec:
    """An input of a traced function."""

    declared: Argument | Held
    #: The number of the argument, or of the shared variable in the file.
    number: int
    #: The value in the example; for a shared variable, only the value's shape matters.
    value: HostArray | Array

    @property
    def is_state(self) -> bool:
        return isinstance(self.declared, Held)


@dataclass(frozen=True, eq=False)
class Traceable:
    """The computation of a function, which can also be linked in another context than the function's own."""

    context: Context
    #: Links the function in a given context, so that a tracer can follow one run of it. The nodes of the linked
    #: function raise `Untraceable` for anything that a file cannot hold.
    linked_in: Callable[[Context], AbstractContextManager[LinkedFunction]]
    #: The dtypes of the outputs that callers get; the remaining outputs are next values of shared variables.
    result_dtypes: Sequence[str]


class _ReplacingContext(Context):
    """A context that replaces another context, and records the dtypes that kernels need."""

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


def trace(function: Traceable, specs: Sequence[InputSpec], device_kind: DeviceKind, fixed: bool) -> Trace:
    """Trace a function, with fixed shapes if `fixed` is set; raise `Untraceable` if a step cannot be traced."""
    profile = function.context.profile
    units = profile.compute_units if device_kind == profile.device_kind else USUAL_UNITS
    result = Trace(device_kind, units)
    symbol = units if fixed else result.rules.symbol(units, ComputeUnits())
    context = _ReplacingContext(function.context, device_kind, symbol)
    tracer = Tracer(result, context)
    with function.linked_in(context) as linked, tracer.following():
        walk = _Walk(linked, specs, context, tracer)
        walk.enter(fixed)
        for node in linked.nodes:
            node.compute()
        walk.record_results(function.result_dtypes)
    result.flags = context.asked & _OPTIONAL_DTYPES
    return result


class _Walk:
    """A trace of one function, under construction."""

    def __init__(self, linked: LinkedFunction, specs: Sequence[InputSpec], context: Context, tracer: Tracer) -> None:
        self._linked = linked
        self._specs = dict(zip(linked.inputs, specs, strict=True))
        self._context = context
        self._tracer = tracer
        self._trace = tracer.trace

    def enter(self, fixed: bool) -> None:
        """Store a placeholder for each input in the input's storage cell."""
        self._trace.arguments = [()] * sum(not spec.is_state for spec in self._specs.values())
        for var, spec in self._specs.items():
            if spec.is_state:
                array = self._tracer.state(self._context.queue, spec.number, spec.value.shape, spec.declared.dtype)
                value = array if self._linked.on_device(var) else on_host(array)
            else:
                value = self._argument(var, spec, fixed)
            self._linked.cells[var][0] = value

    def _argument(self, var: ValueId, spec: InputSpec, fixed: bool) -> Any:
        rules, value, dtype = self._trace.rules, np.asarray(spec.value), np.dtype(spec.declared.dtype)
        shape = tuple(
            length if fixed or is_one else rules.symbol(length, AxisLength(spec.number, axis))
            for axis, (length, is_one) in enumerate(zip(value.shape, spec.declared.broadcastable, strict=True))
        )
        self._trace.arguments[spec.number] = shape
        argument = DeferredArray(shape, dtype, FromArgument(spec.number))
        if self._linked.on_device(var):
            return arrays.from_host(self._context, argument)
        if shape or dtype.kind not in "iuf":
            return argument
        return rules.symbol(value[()] if dtype.kind == "f" else int(value), ArgumentNumber(spec.number))

    def record_results(self, result_dtypes: Sequence[str]) -> None:
        """Record the results, and overwrite shared variables with their next values."""
        for value, dtype in zip(self._commit(len(result_dtypes)), result_dtypes, strict=True):
            if isinstance(value, Array):
                value = self._tracer.layout(value)
            elif not is_open(value):
                value = np.array(value)
            self._trace.outputs.append(OutputSpec(value, np.dtype(dtype)))

    def _commit(self, returned: int) -> list[Any]:
        """Overwrite shared variables with their next values; return the results, copied if necessary."""
        linked = self._linked
        for var in linked.updates:
            if not self._specs[var].is_state:
                name = self._specs[var].declared.name
                raise Untraceable(f"the argument {name} is updated by each call; make it a shared variable")
        states = {var: _array_of(linked.value(var)) for var in linked.updates}
        following: dict[Any, Any] = {var: linked.value(later) for var, later in linked.updates.items()}
        # Results are identified by position, since their values may be plain numbers.
        results = [(number, "result") for number in range(returned)]
        values = following | {key: linked.value(linked.outputs[key[0]]) for key in results}
        values = {key: value if (array := _array_of(value)) is None else array for key, value in values.items()}
        updates = [(var, states[var], values[var]) for var in linked.updates]
        commit = find_commit(updates, values.items(), buffer_of, _is_in_place)
        written = set(commit.written)
        for key in commit.aliased:
            if key in written or key not in following:
                values[key] = in_order(self._context, values[key], always=True)
        for var in commit.written:
            self._write(self._specs[var], states[var], values[var])
        return [values[key] for key in results]

    def _write(self, spec: InputSpec, present: Any, value: Any) -> None:
        shape = tuple(getattr(value, "shape", ()))
        if shape != tuple(present.shape):
            raise Untraceable(
                f"the shared variable {spec.declared.name} of shape {present.shape} is updated to another shape, "
                f"{tuple(map(example_value, shape))}; in a file, shared variables keep their shapes"
            )
        if isinstance(value, Array):
            arrays.copy_bytes(present, in_order(self._context, value))
        elif present.size:
            upload(present.queue, present.base_data, 0, as_host_array(value, spec.declared.dtype))


def _is_in_place(present: Array, following: Any) -> bool:
    """Return whether a next value was computed in the buffer of the current value."""
    if not present.size or buffer_of(following) != buffer_of(present):
        return False
    return bool(following.shape == present.shape and not following.offset and following.flags.c_contiguous)


def in_order(context: Context, array: Array, always: bool = False) -> Array:
    """Return an array in C order without gaps; copy it if it has another layout or if `always` is set."""
    if array.flags.c_contiguous:
        return arrays.copy(array) if always else array
    known = context.kept.setdefault(__name__, {})
    kind = array.dtype.name, array.ndim
    if kind not in known:
        elements = ElementKernels.copying(*kind)
        known[kind] = elements, compile_kernels(elements.kernels(), context, "a copy")
    elements, kernels = known[kind]
    return copied(array, elements, kernels, context)


def is_open(value: Any) -> bool:
    """Return whether a host value is known only during a call."""
    return isinstance(value, SymInt | SymIntVector | DeferredArray)


def on_host(array: Array) -> DeferredArray:
    """Return a host value that is copied from a device array."""
    return DeferredArray(array.shape, array.dtype, FromDevice(array))


def _array_of(value: Any) -> Array | None:
    """Return a device array itself, or the device array that a host value is copied from; None for other values."""
    if isinstance(value, DeferredArray) and isinstance(value.source, FromDevice):
        value = value.source.array
    return value if isinstance(value, Array) else None


def as_host_array(value: Any, dtype: str) -> DeferredArray | HostArray:
    """Return a host value as an array in C order; the value may still be unknown."""
    if isinstance(value, DeferredArray):
        return value
    if isinstance(value, SymInt | SymIntVector):
        numbers = tuple(value) if isinstance(value, SymIntVector) else (value,)
        return DeferredArray(getattr(value, "shape", ()), np.dtype(dtype), FromNumbers(dtype, numbers))
    return np.asarray(value, dtype, order="C")
