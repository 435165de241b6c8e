"""Lifters: functions ``lift(op, context_name, inputs, outputs)`` that replace a host op with device ops.

`GraphToGPU` calls `Lifter.offer` once for each node of a graph. A lifter is also a node rewriter for Theano. A node
rewriter lifts single nodes and adds transfers around each node, which is slower than lifting the whole graph.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from optdb.host.api.graph import Apply, PureOp, Variable, clients, is_output
from optdb.host.api.rewriters import LocalOptimizer, scalar_op_fault
from optdb.host.api.traces import copy_trace
from optdb.lifters.device import ContextName, Device, devices, only_database, transfer_context

OpT = TypeVar("OpT", bound=PureOp)
LiftFunction = Callable[[OpT, ContextName, Sequence[Variable], Sequence[Variable]], Any]
Predicate = Callable[[OpT, ContextName, Sequence[Variable], Sequence[Variable]], "bool | str | None"]


class BadLift(TypeError):
    """Raised if a lifter returns something that cannot replace the node."""


@dataclass(frozen=True)
class Declined:
    """A lifter's rejection of a node, with a reason to show to the user."""

    reason: str


class Lifter(LocalOptimizer):
    """A function that lifts some ops, with an optional predicate.

    Parameters
    ----------
    ops : sequence of Op classes or Op instances
        The ops that the lifter applies to. A class does not include its subclasses.
    function : callable
        ``function(op, context_name, inputs, outputs)`` returns a device op to apply to
        `inputs`; a variable, or a list of variables, one for each of `outputs`; or None
        if it rejects the node.
    supports : callable, optional
        Called before `function` with the same arguments, and during placement with host variables as `inputs`. Returns
        False, or the reason as a string, to reject the node.

    Raises
    ------
    TypeError
        If `ops` is not a list of op classes and instances.
    """

    def __init__(self, ops: Sequence[Any], function: LiftFunction[Any], supports: Predicate[Any] | None = None) -> None:
        self.__name__ = getattr(function, "__name__", type(function).__name__)
        self.__doc__ = function.__doc__
        _check_ops(ops, self.__name__)
        self._ops = list(ops)
        self.function = function
        self.supports = supports

    def tracks(self) -> list[Any]:
        """Return the op classes and instances that this lifter applies to."""
        return self._ops

    def __str__(self) -> str:
        return getattr(self, "name", None) or self.__name__

    def __call__(
        self, op: PureOp, context_name: ContextName, inputs: Sequence[Variable], outputs: Sequence[Variable]
    ) -> Any:
        """Call the function itself."""
        return self.function(op, context_name, inputs, outputs)

    def default_database(self) -> Any:
        """Return the only lifter database, for `optdb.register_topo`; raise NoLifterDatabase unless there is one."""
        return only_database()

    def declines(
        self, op: PureOp, context_name: ContextName, inputs: Sequence[Variable], outputs: Sequence[Variable]
    ) -> Declined | None:
        """Return the rejection by `supports`; None if `supports` accepts the op."""
        if self.supports is None:
            return None
        answer = self.supports(op, context_name, inputs, outputs)
        if answer is None or answer is True:
            return None
        return Declined(answer if isinstance(answer, str) else "rejected by `supports`")

    def offer(
        self,
        op: PureOp,
        context_name: ContextName,
        inputs: Sequence[Variable],
        outputs: Sequence[Variable],
        asked: bool = False,
    ) -> list[Variable] | Declined:
        """Lift one application of an op.

        Parameters
        ----------
        op : Op
            The host op.
        context_name : str or None
            The context to lift to.
        inputs : sequence of Variable
            The node's inputs; those that have been lifted are on the device.
        outputs : sequence of Variable
            The node's outputs, on the host.
        asked : bool
            Whether `supports` has already accepted the node.

        Returns
        -------
        list of Variable or Declined
            One variable for each of `outputs`, on the host or on the device, of the same dtype, rank and broadcast
            pattern.

        Raises
        ------
        BadLift
            If the function returned something that cannot replace the outputs.
        """
        declined = None if asked else self.declines(op, context_name, inputs, outputs)
        if declined is not None:
            return declined
        result = self.function(op, context_name, inputs, outputs)
        if result is None or result is False:
            return Declined("the lifter declined")
        lifted = _as_list(result, op, inputs)
        _check(self, op, lifted, outputs)
        for old, new in zip(outputs, lifted, strict=True):
            if new not in inputs:
                copy_trace(old, new)
        return lifted

    def transform(self, node: Apply) -> list[Variable] | bool:
        """Lift one node, with transfers around it, if an input comes from a device or all users are on a device."""
        placement = _neighbourhood(node)
        if placement is None:
            return False
        device, context_name = placement
        inputs = [_inside(device, var) for var in node.inputs]
        lifted = self.offer(node.op, context_name, inputs, node.outputs)
        if isinstance(lifted, Declined):
            return False
        on_host = [device.host_variable(new) if device.has(new) else new for new in lifted]
        for old, new in zip(node.outputs, on_host, strict=True):
            copy_trace(old, new)
        return on_host


def op_lifter(
    ops: Sequence[type[OpT] | OpT], supports: Predicate[OpT] | None = None
) -> Callable[[LiftFunction[OpT]], Lifter]:
    """Make a lifter from the decorated function.

    Parameters
    ----------
    ops : sequence of Op classes or Op instances
        The ops that the lifter applies to.
    supports : callable, optional
        ``supports(op, context_name, inputs, outputs)`` returns False, or the reason as a string,
        to reject a node.

    Returns
    -------
    callable
        A decorator for ``lift(op, context_name, inputs, outputs)``.

    Raises
    ------
    TypeError
        From the decorator, if `ops` is not a list of ops or op classes.

    Examples
    --------
    ::

        @optdb.register_topo("fast_run", "opencl", position=10)
        @optdb.op_lifter([Dot22])
        def lift_dot22(op, context_name, inputs, outputs):
            return opencl_dot22

    References
    ----------
    Modelled on Theano's ``theano.gpuarray.opt.op_lifter``. Registration is a separate decorator because its parameters
    are independent (Theano PR 4672).
    """

    def decorate(function: LiftFunction[OpT]) -> Lifter:
        lifter = Lifter(ops, function, supports)
        functools.update_wrapper(lifter, function, updated=())
        return lifter

    return decorate


def _check_ops(ops: Sequence[Any], name: str) -> None:
    if not isinstance(ops, list | tuple) or not ops:
        raise TypeError(f"op_lifter for '{name}' takes a list of ops: op_lifter([Elemwise]), not op_lifter(Elemwise)")
    for op in ops:
        if not isinstance(op, PureOp) and not (isinstance(op, type) and issubclass(op, PureOp)):
            raise TypeError(f"op_lifter for '{name}': {op!r} is neither an op nor a class of ops")
        fault = scalar_op_fault(op)
        if fault is not None:
            raise TypeError(f"op_lifter for '{name}' takes {fault}")


def _as_list(result: Any, op: PureOp, inputs: Sequence[Variable]) -> list[Variable]:
    if isinstance(result, PureOp):
        lifted: list[Variable] = result(*inputs, return_list=True)
        return lifted
    if isinstance(result, Variable):
        return [result]
    if isinstance(result, list | tuple) and all(isinstance(var, Variable) for var in result):
        return list(result)
    raise BadLift(
        f"lifting {op} returned {result!r}: a lifter must return an op, a variable, a list of variables, or None"
    )


def _check(lifter: Lifter, op: PureOp, lifted: list[Variable], outputs: Sequence[Variable]) -> None:
    if len(lifted) != len(outputs):
        raise BadLift(f"lifter {lifter} returned {len(lifted)} outputs for {op}, which has {len(outputs)}")
    for index, (new, old) in enumerate(zip(lifted, outputs, strict=True)):
        if _same_type(new.type, old.type):
            continue
        for what in ("dtype", "ndim", "broadcastable"):
            expected, actual = getattr(old.type, what, None), getattr(new.type, what, None)
            if actual != expected:
                raise BadLift(
                    f"lifter {lifter} returned {what} {actual} for output {index} of {op}, which has {expected}"
                )


def _same_type(new: Any, old: Any) -> bool:
    pattern = getattr(new, "broadcastable", None)
    return pattern is not None and new.dtype == old.dtype and pattern == old.broadcastable


def _neighbourhood(node: Apply) -> tuple[Device, ContextName] | None:
    """Return the device and context of the first input from a device, or else of the outputs' users, if any."""
    for var in node.inputs:
        if var.owner is not None:
            source = next((d for d in devices() if isinstance(var.owner.op, d.to_host)), None)
            if source is not None:
                return source, var.owner.inputs[0].type.context_name
    users = [client for out in node.outputs for client, _ in clients(node.fgraph, out)]
    ops = [None if is_output(user) else user.op for user in users]
    for device in devices():
        if ops and all(isinstance(op, device.from_host) for op in ops):
            return device, transfer_context(ops[0])
    return None


def _inside(device: Device, var: Variable) -> Variable:
    """Return the device variable from which a host variable was transferred; return any other variable unchanged."""
    if var.owner is not None and isinstance(var.owner.op, device.to_host):
        return var.owner.inputs[0]
    return var
