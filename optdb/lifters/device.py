"""What the lift has to know of a device.

A device is an array type, three ops that move arrays, and some answers. The
OpenCL device is one (``optdb.opencl.device``); another needs nothing else, see
``docs/howto-add-a-lifter.md``.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from optdb.deprecation import renamed_fields
from optdb.host.graph import Op, Variable
from optdb.host.lifting import is_host_array

#: Name of a context, or None for the default one.
ContextName = str | None


def no_weight(op: Op) -> float:
    """Weigh any op like one elementwise pass over an array."""
    return 1.0


@renamed_fields(refuses="unsupported_reason", sources="source_ops", answers="host_result_ops", at_home="is_host_input")
@dataclass(frozen=True, eq=False)
class Device:
    """A device that graphs are lifted to.

    Parameters
    ----------
    name : str
        What users and messages call it.
    array_type : type
        Of device variables; instances have ``dtype``, ``broadcastable`` and ``context_name``.
    from_host, to_host, between : type
        The transfer ops: ``from_host(context_name)``, ``to_host()`` and
        ``between(context_name)``. Instances of the first and last have ``context_name``.
    as_variable : callable
        ``as_variable(x, context_name)`` returns `x` as a variable on that context, by way of
        `optdb.lifters.transfers.transfer_once` where it makes a transfer.
    default_context : callable
        Returns the name of the context that is used where nothing says which; None if there is none.
    ready : callable
        Raises where the device of the default context is not there or does not work. It is called before a graph is
        optimized: what raises during that is only logged, and the graph stays on the host.
    unsupported_reason : callable
        ``unsupported_reason(dtype, context_name)`` returns why the context cannot hold a dtype, None if it can.
    weight : callable
        ``weight(op)`` returns what an op is worth having on the device, in elementwise passes over
        an array; a view is worth nothing.
    source_ops : tuple of types
        Ops that make arrays out of nothing and go where they are needed.
    host_result_ops : tuple of types
        Ops whose results are on the host wherever they run, such as shapes: what uses these has nothing on the device
        by them.
    is_host_input : callable
        ``is_host_input(op, i)`` tells whether an op that is lifted wants its input `i` on the host all the same, as
        indexes and sizes are; what makes that input out of nothing stays there, too.
    contiguous : callable
        ``contiguous(var)`` returns a device variable as one whose values lie in C order, for loops,
        which write them slice by slice.
    """

    name: str
    array_type: type
    from_host: type[Op]
    to_host: type[Op]
    between: type[Op]
    as_variable: Callable[[Variable, ContextName], Variable]
    default_context: Callable[[], ContextName]
    ready: Callable[[], object] = field(default=lambda: None)
    unsupported_reason: Callable[[str, ContextName], str | None] = field(default=lambda dtype, context_name: None)
    weight: Callable[[Op], float] = no_weight
    source_ops: tuple[type, ...] = ()
    host_result_ops: tuple[type, ...] = ()
    is_host_input: Callable[[Op, int], bool] = field(default=lambda op, i: False)
    contiguous: Callable[[Variable], Variable] = field(default=lambda var: var)

    def __post_init__(self) -> None:
        transfers = (self.from_host, self.to_host, self.between)
        if any(issubclass(one, other) for one, other in itertools.permutations(transfers, 2)):
            raise TypeError(f"device {self.name}: no transfer op may be a child of another one")
        _devices.append(self)

    def __repr__(self) -> str:
        return f"<device {self.name}>"

    def has(self, var: Variable) -> bool:
        """Tell whether a variable is on the device."""
        return isinstance(var.type, self.array_type)

    def context_of(self, var: Variable) -> ContextName:
        """Return the name of the context that a variable is on; None if it is on the host."""
        return var.type.context_name if self.has(var) else None

    def home(self, var: Variable) -> Variable:
        """Return a device variable's value on the host; what came from there is what was there."""
        source = var
        while source.owner is not None and isinstance(source.owner.op, self.between):
            [source] = source.owner.inputs
        if source.owner is not None and isinstance(source.owner.op, self.from_host):
            return source.owner.inputs[0]
        return self.to_host()(var)

    def moves(self, var: Variable) -> bool:
        """Tell whether an input is worth moving: an array of floats, or complex, unless its tag says otherwise.

        ``tag.target`` says which context an input is to be moved to; ``'cpu'`` keeps it on the host. ``tag.is_rng``
        marks the state of a random generator, which goes along with what is drawn.
        """
        if not is_host_array(var):
            return False
        target = getattr(var.tag, "target", None)
        if target is not None:
            return target != "cpu"
        has_parts = var.type.dtype.startswith(("float", "complex"))
        return var.type.ndim > 0 and (has_parts or getattr(var.tag, "is_rng", False))


#: All devices, the youngest last.
_devices: list[Device] = []
#: The databases of lifters, by device.
_databases: dict[Device, Any] = {}


def devices() -> Iterator[Device]:
    """Yield the devices that there are, the youngest first."""
    return reversed(_devices)


class NoLifterDatabase(LookupError):
    """It is not clear in which database a lifter belongs."""


def keep_database(device: Device, database: Any) -> None:
    """Let `database` be where the lifters of a device are registered, unless it has one."""
    _databases.setdefault(device, database)


def only_database() -> Any:
    """Return the database of lifters of the only device that there is.

    Raises
    ------
    NoLifterDatabase
        If there is none, or there are several devices. The message says what to write.
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
