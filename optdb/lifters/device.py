"""The interface of a device that graphs are lifted to.

``docs/howto-add-a-lifter.md`` describes how to add another device.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from optdb.host.api.graph import PureOp, Variable
from optdb.host.api.variables import is_host_array

#: Name of a context, or None for the default context.
ContextName = str | None


def transfer_context(transfer: PureOp | None) -> ContextName:
    """Return the target context of a device's transfer op."""
    op: Any = transfer
    name: ContextName = op.context_name
    return name


def no_weight(op: PureOp) -> float:
    """Return 1, the weight of one elementwise pass, for any op."""
    return 1.0


@dataclass(frozen=True, eq=False)
class Device:
    """A device that graphs are lifted to.

    Parameters
    ----------
    name : str
        The device's name in messages and settings.
    array_type : type
        The type of device variables; instances have ``dtype``, ``broadcastable`` and ``context_name``.
    from_host, to_host, between : type
        The transfer ops: ``from_host(context_name)``, ``to_host()`` and
        ``between(context_name)``. Instances of `from_host` and `between` have ``context_name``.
    as_variable : callable
        ``as_variable(x, context_name)`` returns `x` as a variable on that context; it creates
        transfers with `optdb.lifters.transfers.transfer_once`.
    default_context : callable
        Returns the name of the default context; None if there is none.
    ready : callable
        Raises if the default context's device is missing or does not work. It is called before a graph is optimized,
        because Theano only logs errors that are raised later, and the graph would stay on the host.
    unsupported_reason : callable
        ``unsupported_reason(dtype, context_name)`` returns why the context cannot hold a dtype; None if it can.
    weight : callable
        ``weight(op)`` returns the time that the device saves by running an op, measured in elementwise passes over an
        array; 0 for a view.
    source_ops : tuple of types
        Ops without array inputs that create arrays; they run where their results are used.
    host_result_ops : tuple of types
        Ops whose results are always on the host, such as shapes. Nodes that use these results are not moved to the
        device.
    is_host_input : callable
        ``is_host_input(op, i)`` returns whether a lifted op reads its input `i`, such as an index or a size, on the
        host. A source op that creates such an input also stays on the host.
    contiguous : callable
        ``contiguous(var)`` returns a device variable with the values of `var` in C order, for arrays that a loop writes
        slice by slice.
    sequence : callable
        Like `contiguous`, for sequences that a loop only reads; only each step's slice must be in C order.
    notes : callable
        ``notes(context_name)`` returns sentences for `explain` about settings that have no effect on a context.
    """

    name: str
    array_type: type
    from_host: type[PureOp]
    to_host: type[PureOp]
    between: type[PureOp]
    as_variable: Callable[[Variable, ContextName], Variable]
    default_context: Callable[[], ContextName]
    ready: Callable[[], object] = field(default=lambda: None)
    unsupported_reason: Callable[[str, ContextName], str | None] = field(default=lambda dtype, context_name: None)
    weight: Callable[[PureOp], float] = no_weight
    source_ops: tuple[type, ...] = ()
    host_result_ops: tuple[type, ...] = ()
    is_host_input: Callable[[PureOp, int], bool] = field(default=lambda op, i: False)
    contiguous: Callable[[Variable], Variable] = field(default=lambda var: var)
    sequence: Callable[[Variable], Variable] = field(default=lambda var: var)
    notes: Callable[[ContextName], Sequence[str]] = field(default=lambda context_name: ())

    def __post_init__(self) -> None:
        transfers = (self.from_host, self.to_host, self.between)
        if any(issubclass(transfer, other) for transfer, other in itertools.permutations(transfers, 2)):
            raise TypeError(f"device {self.name}: no transfer op may be a child of another one")
        _devices.append(self)

    def __repr__(self) -> str:
        return f"<device {self.name}>"

    def has(self, var: Variable) -> bool:
        """Return whether a variable is on the device."""
        return isinstance(var.type, self.array_type)

    def context_of(self, var: Variable) -> ContextName:
        """Return the name of the context that a variable is on; None if it is on the host."""
        return var.type.context_name if self.has(var) else None

    def host_variable(self, var: Variable) -> Variable:
        """Transfer a device variable to the host; if it was transferred from the host, return the original variable."""
        source = var
        while source.owner is not None and isinstance(source.owner.op, self.between):
            [source] = source.owner.inputs
        if source.owner is not None and isinstance(source.owner.op, self.from_host):
            return source.owner.inputs[0]
        moved: Variable = self.to_host()(var)
        return moved

    def moves(self, var: Variable) -> bool:
        """Return whether an input moves to the device; by default, float and complex arrays move.

        ``tag.target`` names the context for an input, or ``'cpu'`` to keep it on the host. ``tag.is_rng`` marks a
        random generator's state, which moves to the device of its samples.
        """
        if not is_host_array(var):
            return False
        target = getattr(var.tag, "target", None)
        if target is not None:
            return bool(target != "cpu")
        has_parts = var.type.dtype.startswith(("float", "complex"))
        return bool(var.type.ndim > 0 and (has_parts or getattr(var.tag, "is_rng", False)))


_devices: list[Device] = []
_databases: dict[Device, Any] = {}


def devices() -> Iterator[Device]:
    """Yield all devices, from the newest to the oldest."""
    return reversed(_devices)


class NoLifterDatabase(LookupError):
    """Raised if no device has a lifter database, or if several have one."""


def keep_database(device: Device, database: Any) -> None:
    """Make `database` the lifter database of a device, unless the device already has one."""
    _databases.setdefault(device, database)


def only_database() -> Any:
    """Return the lifter database of the only device.

    Raises
    ------
    NoLifterDatabase
        If there is no device, or there are several.
    """
    if len(_databases) == 1:
        return next(iter(_databases.values()))
    there = (
        f"there are several devices ({', '.join(device.name for device in _databases)})"
        if _databases
        else "there is no device yet"
    )
    cure = "name the database" if _databases else "import optdb.opencl before, or name the database"
    raise NoLifterDatabase(f"{there}: {cure}, as in @optdb.register_topo('fast_run', db=optdb.opencl.lifters_db)")
