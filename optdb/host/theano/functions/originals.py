"""Recovers the graph of a compiled function as the user wrote it, and compiles graphs derived from it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from theano import Mode, tensor
from theano import __version__ as theano_version  # noqa: F401  a name for other packages
from theano import function as _function
from theano import shared as _shared
from theano.compile.function_module import Function
from theano.compile.io import Out
from theano.compile.sharedvalue import SharedVariable
from theano.gof.graph import Variable
from theano.tensor.var import TensorVariable

from optdb.host.api.graph import io_toposort


@dataclass(frozen=True)
class CallArgument:
    """An input that the caller passes."""

    variable: Variable
    name: str | None
    required: bool
    default: Any
    #: Whether float arrays of wider types are accepted.
    allow_downcast: bool | None


@dataclass(frozen=True)
class Original:
    """A compiled function's graph before Theano's optimizer."""

    name: str | None
    arguments: list[CallArgument]
    outputs: list[Variable]
    updates: dict[SharedVariable, Variable]
    #: The shared variables, in the order of the function's inputs.
    shared: list[SharedVariable]
    returns_one: bool
    output_keys: list[str] | None
    optimizer: Any

    @property
    def nodes(self) -> list[Any]:
        """All nodes, in topological order."""
        inputs = [argument.variable for argument in self.arguments]
        return io_toposort([*inputs, *self.shared], [*self.outputs, *self.updates.values()])


def original_of(function: Function) -> Original:
    """Return the graph of a compiled function as the user wrote it.

    Raises
    ------
    TypeError
        If `function` is not a compiled function, or if calls update its inputs.
    """
    if not isinstance(function, Function):
        raise TypeError(f"expected a compiled function, as returned by theano.function, not {function!r}")
    arguments, updates, shared = [], {}, []
    for spec, (required, _, value) in zip(function.maker.inputs, function.defaults, strict=True):
        if isinstance(spec.variable, SharedVariable):
            shared.append(spec.variable)
            if spec.update is not None:
                updates[spec.variable] = spec.update
            continue
        if spec.update is not None:
            raise TypeError(
                f"the input {spec.variable} has an update, so its value belongs to the function, and copies of the "
                "function cannot share it.\n"
                "The cure: make it a shared variable"
            )
        default = getattr(value, "storage", [value])[0]
        allow_downcast = getattr(spec, "allow_downcast", None)
        arguments.append(CallArgument(spec.variable, spec.name, required, default, allow_downcast))
    return Original(
        *(function.name, arguments, [spec.variable for spec in function.maker.outputs], updates, shared),
        *(function.unpack_single and not function.return_none, function.output_keys),
        function.maker.mode.provided_optimizer,
    )


def compile_step(
    inputs: Sequence[Variable],
    outputs: Sequence[Variable],
    updates: Mapping[SharedVariable, Variable],
    optimizer: Any,
    name: str,
    borrow: bool = True,
) -> Function:
    """Compile a graph for a simulator; the function runs on the host, in Python.

    If `borrow` is true, a call may overwrite the previous results. Unused inputs are accepted.
    """
    return _function(
        # Pass plain variables, because Theano would compare the memory of each pair of borrowed inputs.
        list(inputs),
        [Out(var, borrow=borrow) for var in outputs],
        updates=list(updates.items()),
        mode=Mode(linker="py", optimizer=optimizer),
        no_default_updates=True,
        on_unused_input="ignore",
        name=name,
    )


def held_variable(var: Variable, name: str) -> SharedVariable:
    """Return a new shared variable for values of a tensor variable; its initial value is an empty array.

    The old value is never needed: a function that updates the variable does not read it, and can overwrite it even if
    the call then raises.
    """
    shape = [int(is_one) for is_one in var.type.broadcastable]
    held = _shared(np.zeros(shape, var.type.dtype), name, broadcastable=var.type.broadcastable)
    held.tag.is_scratch = True
    return held


def int_scalar(name: str) -> TensorVariable:
    """Return a new integer scalar input."""
    number: TensorVariable = tensor.lscalar(name)
    return number
