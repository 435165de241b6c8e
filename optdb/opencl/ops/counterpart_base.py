"""Base classes of the host ops' device counterparts, which inherit parameters, shapes and gradients from the host op.

Ops that return views derive from the classes in this module, which do not cast inputs: a cast is an elementwise op, and
elementwise ops need view ops. Ops whose inputs need a common dtype derive from
`optdb.opencl.ops.counterpart.Counterpart`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import zip_longest
from typing import Any, ClassVar

import numpy as np

from optdb.host.api.graph import Apply, Op, PureOp, Variable
from optdb.host.api.variables import as_tensor_variable, is_host_array
from optdb.opencl.kernel_ops.base import BeforeOp, OpenCLKernelBase, Performed
from optdb.opencl.transfers import OpenCLFromHost, as_host_variable, as_opencl_variable, infer_context_name
from optdb.opencl.type import OpenCLArrayType


class CounterpartBase(BeforeOp):
    """Base class of counterparts. A subclass lists `CounterpartBase` before the host op's class, which comes last."""

    #: The host op's class: the last base class, unless a counterpart sets `host` itself.
    host: ClassVar[type[PureOp]]
    #: The inputs that are device arrays; all other inputs stay on the host.
    device_inputs: ClassVar[slice | Sequence[int]] = slice(None)
    #: The constructor's parameters, which the host op and its counterpart store in attributes with the same names; None
    #: if they are in `__props__`. The parameters cannot be read from the signature, since the op cache replaces every
    #: op class's `__call__`.
    parameters: ClassVar[Sequence[str] | None] = None
    #: Attributes that `like` need not copy because only the host op reads them or the device op sets them itself.
    own_attributes: ClassVar[frozenset[str]] = frozenset()
    #: Most counterparts use the arrays' actual lengths; the few that rely on broadcast patterns check the lengths in
    #: `run`.
    checks_lengths = True

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if getattr(cls, "common_dtype", None) is not None and cls.move_arrays is CounterpartBase.move_arrays:
            raise TypeError(
                f"{cls.__name__}.common_dtype has no effect: views, and other classes that derive from CounterpartBase "
                "directly, keep the dtypes of their inputs.\n"
                "HINT: derive from optdb.opencl.ops.counterpart.Counterpart, which casts, or remove common_dtype."
            )
        last = cls.__bases__[-1]
        of_device = issubclass(last, CounterpartBase | OpenCLKernelBase)
        if "host" not in vars(cls) and issubclass(last, Op) and not of_device:
            cls.host = last
        if "host" in vars(cls):
            _counterparts[cls.host] = cls

    @classmethod
    def like(cls, op: Any) -> Any:
        """Return an op with a host op's parameters; raise TypeError if a parameter is missing from `parameters`."""
        names = getattr(cls, "__props__", ()) if cls.parameters is None else cls.parameters
        like = cls(**{name: getattr(op, name) for name in names})
        differing = sorted(_differing(op, like) - cls.own_attributes)
        if differing:
            raise TypeError(
                f"{cls.__name__} does not copy {', '.join(differing)} from {op}.\n"
                f"HINT: name the parameters of its constructor, {cls.__name__}.parameters = ('{differing[0]}', ...), "
                "or write a like(op) of its own."
            )
        return like

    def make_node(self, *inputs: Any) -> Apply:
        """Return a node with its arrays on one device: the device of the first array that is on a device.

        Other inputs that are on a device, such as indices computed there, are copied to the host.
        """
        slots = self.device_slots(len(inputs))
        arrays = dict(zip(slots, self.move_arrays([inputs[i] for i in slots]), strict=True))
        context_name = arrays[slots[0]].type.context_name
        moved = [arrays[i] if i in arrays else to_host_variable(x) for i, x in enumerate(inputs)]
        like = self.host.make_node(self, *[x.type.host_type() if _on_device(x) else x for x in moved])
        # The host op may add inputs that the caller omitted.
        taken = [x if _on_device(x) else host_input for x, host_input in zip_longest(moved, like.inputs)]
        outputs = [OpenCLArrayType(out.type.dtype, out.type.broadcastable, context_name)() for out in like.outputs]
        return Apply(like.op, taken, outputs)

    def move_arrays(self, arrays: Sequence[Any]) -> list[Variable]:
        return on_one_device(arrays)

    @classmethod
    def device_slots(cls, number: int) -> Sequence[int]:
        """Return the positions of device arrays among `number` inputs."""
        if isinstance(cls.device_inputs, slice):
            return range(number)[cls.device_inputs]
        return [i for i in cls.device_inputs if i < number]


_counterparts: dict[type, type[CounterpartBase]] = {}


def counterpart_of(op_class: type) -> type[CounterpartBase] | None:
    """Return the counterpart of a host class or of its nearest base that has one; None if there is none."""
    return next((_counterparts[cls] for cls in op_class.__mro__ if cls in _counterparts), None)


def counterpart_class(op: PureOp) -> type[CounterpartBase]:
    """Return the counterpart of an op that has one."""
    counterpart = counterpart_of(type(op))
    assert counterpart is not None, op
    return counterpart


#: Attributes that only the host op's C code reads.
_OF_C_CODE = frozenset({"openmp", "func_files", "func_codes", "code_sections"})


def _differing(op: PureOp, like: PureOp) -> set[str]:
    here, there = vars(op), vars(like)
    return {name for name in here.keys() & there.keys() - _OF_C_CODE if not _is_equal(here[name], there[name])}


_IDENTITY: Callable[..., bool] = object.__eq__


def _is_equal(value: Any, other: Any) -> bool:
    """Tell whether two values are equal, or have the same class if that class does not define equality."""
    if type(value).__eq__ is _IDENTITY:
        return type(value) is type(other)
    return value is other or bool(np.all(value == other))


class View(Performed, CounterpartBase):
    """A counterpart without kernels."""


def on_one_device(arrays: Sequence[Any]) -> list[Variable]:
    """Move arrays to one device: the device of the first array that is on a device, or else the default device."""
    context_name = infer_context_name(*[x for x in arrays if isinstance(x, Variable)])
    return [as_opencl_variable(x, context_name) for x in arrays]


def as_on_host(
    method: Callable[..., Sequence[Any]], inputs: Sequence[Variable], *others: Sequence[Variable | None]
) -> list[Any]:
    """Call a host op's method with device variables, and return its results on the same device."""
    context_name = infer_context_name(*inputs)
    groups = [[None if x is None else as_tensor_variable(x) for x in group] for group in (inputs, *others)]
    results = method(*groups)
    return [as_opencl_variable(x, context_name) if x is not None and is_host_array(x) else x for x in results]


def to_host_variable(x: Any) -> Any:
    """Return a host variable for a device variable or a NumPy array; return any other value unchanged."""
    if isinstance(x, np.ndarray):
        return as_tensor_variable(x)
    if not _on_device(x):
        return x
    if x.owner is not None and isinstance(x.owner.op, OpenCLFromHost):
        return x.owner.inputs[0]
    return as_host_variable(x)


def _on_device(x: Any) -> bool:
    return isinstance(getattr(x, "type", None), OpenCLArrayType)
