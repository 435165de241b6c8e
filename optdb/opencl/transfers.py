"""Transfers between the host and the device, and between devices.

`as_opencl_variable` moves any variable or value to a device in as few transfers as possible. Transfers always copy, so
a host value and a device value never share memory.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any

import numpy as np

from optdb.host.api.graph import Apply, Constant, Op, Variable
from optdb.host.api.tensor import copy_stack_trace
from optdb.host.api.variables import TensorType, add_transfer, as_tensor_variable
from optdb.lifters.contexts import ContextNotDefined
from optdb.lifters.transfers import record_transfer, transfer_once
from optdb.numpy_types import HostArray
from optdb.opencl.registry import contexts
from optdb.opencl.type import OpenCLArrayType, opencl_type
from optdb.runtime import arrays

__all__ = [
    "HostFromOpenCL",
    "MixedContexts",
    "OpenCLFromHost",
    "OpenCLToOpenCL",
    "TransferOp",
    "as_host_variable",
    "as_opencl_variable",
    "as_typed",
    "infer_context_name",
    "record_transfer",
]


def as_typed(value: HostArray, var: Variable) -> HostArray:
    """Convert a host array to its variable's dtype, because kernels read elements of that dtype.

    Theano does not check the results of ops, and it does not check arguments if ``trust_input`` is set. Raises
    TypeError if the number of dimensions differs from the variable's, or if NumPy's rule 'same_kind' does not allow the
    cast.
    """
    kind = var.type
    if value.dtype == kind.numpy_dtype and value.ndim == kind.ndim:
        return value
    if value.ndim != kind.ndim or not np.can_cast(value.dtype, kind.dtype, "same_kind"):
        called = str(var) if var.name or var.owner is None else f"output {var.index} of {var.owner.op}"
        raise TypeError(
            f"{called} must be {kind}, but is an array of {value.dtype} with shape {value.shape}.\n"
            f"The cure: convert it to {kind.dtype} with {kind.ndim} dimensions, or change the type of the variable"
        )
    return value.astype(kind.dtype)


class TransferOp(Op):
    """Base class of transfers, which move a value between the host and a device or between devices."""

    _f16_ok = True
    #: See `OpenCLKernelBase.repeatable`.
    repeatable = False

    def infer_shape(self, node: Apply, shapes: Sequence[Any]) -> Sequence[Any]:
        return shapes

    def grad(self, inputs: Sequence[Variable], output_grads: Sequence[Variable]) -> list[Variable]:
        return [as_opencl_variable(output_grads[0], inputs[0].type.context_name)]

    def R_op(self, inputs: Sequence[Variable], eval_points: Sequence[Variable | None]) -> list[Any]:  # noqa: N802 (the host's name)
        (point,) = eval_points
        return [None if point is None else self(point)]


class _ToDevice(TransferOp):
    """A transfer to a named context, or to the default context if no name is given."""

    __props__ = ("context_name",)

    def __init__(self, context_name: Hashable = None) -> None:
        self.context_name = contexts.resolve(context_name)

    def perform(self, node: Apply, inputs: Sequence[Any], output_storage: Sequence[list[Any]]) -> None:
        ((out,),) = output_storage
        value = as_typed(arrays.as_host_value(inputs[0]), node.inputs[0])
        output_storage[0][0] = arrays.from_host(node.outputs[0].type.context, value, out)
        record_transfer(self, value.nbytes)

    def __str__(self) -> str:
        return f"{type(self).__name__}<{self.context_name}>"


class OpenCLFromHost(_ToDevice):
    """Move an array to a named context, or to the default context if no name is given."""

    repeatable = True

    def make_node(self, x: Any) -> Apply:
        if isinstance(getattr(x, "type", None), OpenCLArrayType):
            raise TypeError(f"{self} moves arrays from the host, and {x} is on {x.type.context_name}")
        x = as_tensor_variable(x)
        out = opencl_type(x.dtype, x.broadcastable, self.context_name)()
        _keep_comparison(x, out, _OnHost)
        return Apply(self, [x], [out])

    def grad(self, inputs: Sequence[Variable], output_grads: Sequence[Variable]) -> list[Variable]:
        return [as_tensor_variable(output_grads[0])]


class HostFromOpenCL(TransferOp):
    """Move an array from the device to the host."""

    __props__ = ()

    def make_node(self, x: Any) -> Apply:
        _check_on_device(self, x)
        out = TensorType(x.dtype, x.broadcastable)()
        _keep_comparison(x, out, _unwrapped)
        return Apply(self, [x], [out])

    def perform(self, node: Apply, inputs: Sequence[Any], output_storage: Sequence[list[Any]]) -> None:
        ((out,),) = output_storage
        output_storage[0][0] = arrays.to_host(inputs[0], out)
        record_transfer(self, inputs[0].nbytes)


class OpenCLToOpenCL(_ToDevice):
    """Move an array from one device to another through the host; the parameter is the same as for `OpenCLFromHost`."""

    def make_node(self, x: Any) -> Apply:
        _check_on_device(self, x)
        out = x.type.clone(context_name=self.context_name)()
        _keep_comparison(x, out, lambda compare: compare)
        return Apply(self, [x], [out])


def as_host_variable(x: Variable) -> Variable:
    """Return a host variable for a device variable; while a graph is lifted, an existing host variable is reused."""
    return transfer_once((x, HostFromOpenCL), lambda: HostFromOpenCL()(x))


def _check_on_device(op: Op, x: Any) -> None:
    kind = getattr(x, "type", type(x).__name__)
    if not isinstance(kind, OpenCLArrayType):
        raise TypeError(f"{op} moves arrays from an OpenCL device, and {x} is of type {kind}")


class _OnHost:
    """A host comparison function that accepts device values."""

    def __init__(self, compare: Callable[..., bool]) -> None:
        self.compare = compare

    def __call__(self, a: Any, b: Any) -> bool:
        return self.compare(arrays.to_host(a), arrays.to_host(b))


def _unwrapped(compare: Callable[..., bool]) -> Callable[..., bool] | None:
    return compare.compare if isinstance(compare, _OnHost) else None


def _keep_comparison(x: Variable, out: Variable, adapt: Callable[[Any], Any]) -> None:
    """Copy the input's custom comparison of values to the output, if the input has one."""
    compare = getattr(x.tag, "values_eq_approx", None)
    adapted = None if compare is None else adapt(compare)
    if adapted is not None:
        out.tag.values_eq_approx = adapted


def as_opencl_variable(x: Any, context_name: Hashable = None) -> Variable:
    """Convert a value, or a variable on the host or on any device, to a device variable.

    Parameters
    ----------
    x : object
        A variable, an array on a device or on the host, or an object that the host converts to a variable.
    context_name : str, optional
        The context to move the value to. If it is None, the default context is used.

    Returns
    -------
    Variable
        The variable from which `x` was transferred, if that variable is on the device; a constant, if `x` is a constant
        or a value; otherwise the result of a transfer. While a graph is lifted, an existing transfer of the variable is
        reused.
    """
    name = contexts.resolve(context_name)
    if isinstance(x, arrays.Array):
        return OpenCLArrayType(x.dtype, [length == 1 for length in x.shape], name).make_constant(x)
    start = x
    x = _before_transfers(x, name)
    if isinstance(x.type, OpenCLArrayType) and x.type.context_name == name:
        return x
    if isinstance(x, Constant):
        return transfer_once((x, name), lambda: _constant(x, name))
    op = OpenCLToOpenCL(name) if isinstance(x.type, OpenCLArrayType) else OpenCLFromHost(name)
    return transfer_once((x, op), lambda: copy_stack_trace(start, op(x)))


class MixedContexts(ValueError):
    """Raised if an op's inputs belong to more than one context."""


def infer_context_name(*variables: Variable) -> Hashable:
    """Return the name of the context in which an op with these inputs should run.

    In order of precedence, this is the context of an input on a device, the context of an input that was transferred
    from a device, the context named in an input's ``tag.context_name`` or ``tag.target``, and the default context.

    Raises
    ------
    MixedContexts
        If inputs are on different devices.
    ContextNotDefined
        If no input determines a context and there is no default.
    """
    here = {var.type.context_name: var for var in variables if isinstance(var.type, OpenCLArrayType)}
    if len(here) > 1:
        where = ", ".join(f"{var} is on {name}" for name, var in here.items())
        raise MixedContexts(f"{where}; move them to one of these first: x.transfer({next(iter(here))!r})")
    if here:
        return next(iter(here))
    for var in variables:
        if var.owner is not None and isinstance(var.owner.op, HostFromOpenCL):
            return var.owner.inputs[0].type.context_name
    for var in variables:
        noted = getattr(var.tag, "context_name", None) or getattr(var.tag, "target", None)
        if noted is not None and noted != "cpu":
            return contexts.resolve(noted)
    return contexts.resolve(None)


def _before_transfers(x: Any, name: Hashable) -> Variable:
    """Return the variable from which `x` was transferred; in a chain of transfers, prefer one in context `name`."""
    x = x if isinstance(getattr(x, "type", None), OpenCLArrayType) else as_tensor_variable(x)
    while x.owner is not None and isinstance(x.owner.op, TransferOp):
        if isinstance(x.type, OpenCLArrayType) and x.type.context_name == name:
            break
        (x,) = x.owner.inputs
    return x


def _constant(x: Constant, name: Hashable) -> Variable:
    data = np.asarray(x.data) if isinstance(x.type, TensorType) else arrays.to_host(x.data)
    return OpenCLArrayType(x.type.dtype, x.type.broadcastable, name).make_constant(data, name=x.name)


def _move(x: Any, target: Hashable) -> Variable | None:
    if target is None and contexts.default is None:
        return None
    if target is not None and target not in contexts:
        return None
    return as_opencl_variable(x, target)


def _unknown(target: Hashable) -> Exception:
    try:
        contexts.resolve(target)
    except ContextNotDefined as error:
        return error
    return ContextNotDefined(f"{target}: variables of this type cannot be moved there")


add_transfer(_move, _unknown)
