"""Collects the parts of a compiled function that go into a file: nodes, signature, and shared values."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from optdb.device.plans.linked import LinkedFunction
from optdb.host.api.config import config
from optdb.host.api.graph import Variable
from optdb.opencl.linking import PlannedVM
from optdb.opencl.linking.nodes import is_user_inplace, on_device
from optdb.opencl.linking.planned_vm import applies, as_variables
from optdb.runtime.arrays import as_host_value
from optdb.runtime.calling import Argument, Signature
from optdb.runtime.tracing import Untraceable

__all__ = ["Exportable", "Held", "of_function", "of_method"]


@dataclass(frozen=True)
class Held:
    """A shared variable: its cell of one element, the same in all functions, and its name, if it has one."""

    cell: list[Any]
    name: str | None


@dataclass(frozen=True)
class Exportable:
    """A function that can be traced."""

    #: Its nodes, lifted to the device.
    linked: LinkedFunction
    #: How it is called.
    signature: Signature
    #: Input of the linked function to the number of the argument in the signature.
    arguments: Mapping[Variable, int]
    #: Input of the linked function to the shared variable.
    shared: Mapping[Variable, Held]
    #: How many of its outputs are for the caller: the first ones.
    returned: int
    #: Returns the remembered inputs of earlier calls: for each call, input to shape and, if it is a small one of the
    #: host, value.
    seen: Callable[[], Sequence[Mapping[Any, tuple[tuple[int, ...], Any]]]] = tuple

    def calls(self) -> list[list[np.ndarray]]:
        """Return examples like the latest calls of the function, as far as they are remembered; the last one first."""
        examples = []
        for call in self.seen():
            example = [np.zeros((), argument.dtype) for argument in self.signature.arguments]
            for var, position in self.arguments.items():
                shape, value = call[var]
                dtype = self.signature.arguments[position].dtype
                example[position] = np.zeros(shape, dtype) if value is None else np.asarray(value, dtype)
            examples.append(example)
        return examples[::-1]

    def context_name(self) -> Hashable:
        """Return the name of the context that all its arrays are in.

        Raises
        ------
        Untraceable
            If there is none, or more than one.
        """
        nodes = applies(self.linked)
        variables = [
            *as_variables(self.linked.inputs),
            *(var for node in nodes for var in (*node.inputs, *node.outputs)),
        ]
        names = list(dict.fromkeys(var.type.context_name for var in variables if on_device(var)))
        if not names:
            raise Untraceable("nothing of the function is on a device: compile it for one")
        if len(names) > 1:
            raise Untraceable(
                f"the function works on several devices, {', '.join(map(str, names))}: compile it for one"
            )
        return names[0]


def of_function(function: Any) -> Exportable:
    """Return the parts of a ``theano.function`` that go into a file.

    Parameters
    ----------
    function : theano.compile.Function
        Compiled for the device, in a mode with plans.

    Raises
    ------
    Untraceable
        If the function cannot be exported.
    """
    return _exportable(function, function.fn, lambda container: container.storage)


def of_method(function: Any, executable: Any) -> Exportable:
    """Return the parts of a simulator's method that go into a file, with its own values of shared variables.

    The method was made of `function`, and the `executable` of ``optdb.opencl.simulator`` computes it. Raises what
    `of_function` does.
    """
    cells = dict(zip(function.input_storage, executable.input_cells, strict=True))
    return _exportable(function, executable.run, cells.__getitem__)


def _exportable(function: Any, machine: Any, cell_of: Callable[[Any], list[Any]]) -> Exportable:
    """Return the parts of a linked function that go into a file; `cell_of` returns the cell of a shared value."""
    if not isinstance(machine, PlannedVM):
        raise Untraceable(
            "nothing of the function is on a device, or it runs without plans (profiles and other linkers than the "
            "default one do): compile it for a device, with optdb.plans=True"
        )
    linked = machine.linked
    _check_nodes(linked)
    arguments: dict[Variable, int] = {}
    shared: dict[Variable, Held] = {}
    taken: list[Argument] = []
    inputs = zip(
        as_variables(linked.inputs), function.maker.inputs, function.input_storage, function.defaults, strict=True
    )
    for var, spec, container, default in inputs:
        if container.implicit:
            shared[var] = Held(cell_of(container), spec.name or spec.variable.name)
            continue
        if spec.update is not None:
            raise Untraceable(f"the argument {spec.name or spec.variable} has an update: make it a shared variable")
        arguments[var] = len(taken)
        taken.append(_argument(spec, container, default))
    returns = "none" if function.return_none else "single" if function.unpack_single else "list"
    keys = None if function.output_keys is None else tuple(map(str, function.output_keys))
    signature = Signature(tuple(taken), returns, keys)
    return Exportable(linked, signature, arguments, shared, function.n_returned_outputs, machine.seen)


def _check_nodes(linked: LinkedFunction) -> None:
    """Raise Untraceable if a node does what a file cannot do."""
    for node in filter(is_user_inplace, applies(linked)):
        raise Untraceable(
            f"{node.op} overwrites an argument where the caller has it, which a file cannot do: use the op that is not "
            "in place, and take its result"
        )
    if linked.branches.conditions:
        asked = as_variables(linked.branches.conditions)
        conditions = ", ".join(dict.fromkeys(str(var.owner or var) for var in asked))
        raise Untraceable(
            f"the function has branches (ifelse), which a file cannot have; it chooses by {conditions}: give these "
            "values that are known when it is compiled (givens), and export a function for each"
        )


def _argument(given: Any, container: Any, default: tuple[bool, bool, Any]) -> Argument:
    required, _, value = default
    kind = given.variable.type
    stored = getattr(value, "storage", [value])[0]
    dtype = str(kind.dtype)
    return Argument(
        given.name or given.variable.name,
        dtype,
        tuple(map(bool, kind.broadcastable)),
        bool(container.strict),
        container.allow_downcast,
        None if required else np.asarray(as_host_value(stored), dtype),
        dtype == config.floatX,
    )
