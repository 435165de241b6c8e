"""Ops with branches or loops inside, lifted for any device.

`lift_inner` registers a device's lifters for IfElse. Its condition stays on the
host, which decides; both branches are the device's, and what it returns is one
of them, as it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from optdb.host.branching import IfElse, ifelse_between
from optdb.host.graph import Variable
from optdb.host.lifting import is_host_array
from optdb.lifters.device import ContextName, Device
from optdb.lifters.lifter import Lifter, op_lifter
from optdb.topo.db import TopoOptDB, register_topo


def ifelse_lifter(device: Device) -> Lifter:
    """Return the lifter of IfElse for `device`."""

    def only_arrays(op: Any, context_name: ContextName, inputs: Sequence[Variable], outputs: Sequence[Variable]) -> Any:
        if all(is_host_array(out) for out in outputs):
            return True
        return "a branch gives something else than arrays"

    @op_lifter([IfElse], supports=only_arrays)
    def lift_ifelse(
        op: Any, context_name: ContextName, inputs: Sequence[Variable], outputs: Sequence[Variable]
    ) -> list[Variable]:
        """Choose between device variables, by a condition on the host."""
        condition, *branches = inputs
        if device.has(condition):
            condition = device.home(condition)
        return ifelse_between(op, condition, [device.as_variable(var, context_name) for var in branches])

    return lift_ifelse


def lift_inner(database: TopoOptDB, device: Device, *tags: str, position: float = 1) -> None:
    """Register `device`'s lifters of ops with graphs inside.

    Parameters
    ----------
    database : TopoOptDB
        Of the device's lifters.
    device : Device
        Where to.
    *tags : str
        By which queries find them.
    position : float
        Where they stand among the lifters.
    """
    register_topo(*tags, db=database, position=position)(ifelse_lifter(device))
