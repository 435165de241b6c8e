"""Lifters for ops that contain branches or loops, for any device.

An IfElse evaluates its condition on the host and returns one of its branches without a copy. All float and complex
arrays of a Scan move to the device; counters and indexes stay on the host.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from optdb.host.api import control_flow
from optdb.host.api.graph import FunctionGraph, Variable
from optdb.host.api.variables import TensorType, is_host_array
from optdb.lifters.device import ContextName, Device
from optdb.lifters.lift import GraphToGPU
from optdb.lifters.lifter import Lifter, op_lifter
from optdb.topo.db import TopoOptDB, register_topo


def ifelse_lifter(device: Device) -> Lifter:
    """Return the lifter of IfElse for `device`."""

    def only_arrays(op: Any, context_name: ContextName, inputs: Sequence[Variable], outputs: Sequence[Variable]) -> Any:
        if all(is_host_array(out) for out in outputs):
            return True
        return "a branch returns something other than arrays"

    @op_lifter([control_flow.IfElse], supports=only_arrays)
    def lift_ifelse(
        op: Any, context_name: ContextName, inputs: Sequence[Variable], outputs: Sequence[Variable]
    ) -> list[Variable]:
        """Select one of two device variables by a condition on the host."""
        condition, *branches = inputs
        if device.has(condition):
            condition = device.host_variable(condition)
        return control_flow.ifelse_between(op, condition, [device.as_variable(var, context_name) for var in branches])

    return lift_ifelse


def scan_lifter(database: TopoOptDB, device: Device) -> Lifter:
    """Return the lifter of Scan for `device`; loop bodies are lifted by the lifters in `database`."""

    @op_lifter([control_flow.Scan], supports=_unless_watched)
    def lift_scan(
        op: Any, context_name: ContextName, inputs: Sequence[Variable], outputs: Sequence[Variable]
    ) -> list[Variable] | None:
        """Build a Scan whose arrays are on the device."""
        fgraph = _lifted_body(op, context_name, device, database)

        def array_type(broadcastable: Sequence[bool], dtype: str) -> Any:
            if _goes(device, dtype, context_name):
                return device.array_type(dtype, broadcastable, context_name=context_name)
            return TensorType(dtype, broadcastable)

        lifted = control_flow.scan_around(
            op, fgraph, array_type, key=(op, context_name), database=database, tag=device.name
        )
        outside = list(inputs)
        for number, var in enumerate(inputs):
            in_order = device.sequence if 1 <= number <= op.n_seqs else device.contiguous
            outside[number] = _outside(device, var, context_name, in_order)
        outputs_of_lifted: list[Variable] = lifted(*outside, return_list=True)
        return outputs_of_lifted

    return lift_scan


def _unless_watched(
    op: Any, context_name: ContextName, inputs: Sequence[Variable], outputs: Sequence[Variable]
) -> bool | str:
    mode = control_flow.watching_mode(op)
    return mode is None or f"its mode, {mode}, watches each step on the host"


def _lifted_body(op: Any, context_name: ContextName, device: Device, database: TopoOptDB) -> FunctionGraph:
    """Return the inner graph of a Scan, optimized and lifted."""
    body = control_flow.inner_graph(op)
    control_flow.optimized_until(op, body, database)
    inside: dict[Variable, Variable] = {}
    for var in body.inputs:
        if is_host_array(var) and _goes(device, var.type.dtype, context_name):
            there = device.array_type(var.type.dtype, var.type.broadcastable, context_name=context_name)
            inside[var] = there.make_variable(name=var.name)
    outputs = control_flow.recompute(body.outputs, {var: device.host_variable(there) for var, there in inside.items()})
    last = len(outputs) - op.as_while  # the host reads the condition
    outputs = [
        device.as_variable(out, context_name)
        if number < last and is_host_array(out) and _goes(device, out.type.dtype, context_name)
        else out
        for number, out in enumerate(outputs)
    ]
    fgraph = FunctionGraph([inside.get(var, var) for var in body.inputs], outputs, clone=True)
    GraphToGPU(database, device).optimize(fgraph)
    return fgraph


def _outside(
    device: Device, var: Variable, context_name: ContextName, in_order: Callable[[Variable], Variable]
) -> Variable:
    """Return an outer input where the loop expects it: on the device for float and complex arrays, else on the host."""
    goes = _goes(device, getattr(var.type, "dtype", ""), context_name)
    if goes and (device.has(var) or is_host_array(var)):
        return in_order(device.as_variable(var, context_name))
    return device.host_variable(var) if device.has(var) else var


def _goes(device: Device, dtype: str, context_name: ContextName) -> bool:
    """Return whether arrays of a dtype move to the device: floats, and complex numbers if the device supports them."""
    if dtype.startswith("complex"):
        return device.unsupported_reason(dtype, context_name) is None
    return dtype.startswith("float")


def lift_inner(database: TopoOptDB, device: Device, *tags: str) -> None:
    """Register lifters for ops with inner graphs in the database of `device`, under `tags`."""
    register_topo(*tags, db=database, position=1)(ifelse_lifter(device))
    register_topo(*tags, db=database, position=1)(scan_lifter(database, device))
