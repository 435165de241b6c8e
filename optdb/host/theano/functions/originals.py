"""The graph that a user wrote, of a function that is compiled already, and the compilation of graphs made from it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from theano import Mode, tensor
from theano import __version__ as theano_version
from theano import function as _function
from theano import shared as _shared
from theano.compile.function_module import Function
from theano.compile.io import Out
from theano.compile.sharedvalue import SharedVariable
from theano.gof.graph import Variable
from theano.tensor.var import TensorVariable

from optdb.host.api.graph import io_toposort

__all__ = [
    "CallArgument",
    "Original",
    "compile_step",
    "held_variable",
    "int_scalar",
    "original_of",
    "tensor",
    "theano_version",
]


@dataclass(frozen=True)
class CallArgument:
    """An input that a caller gives."""

    variable: Variable
    #: None if it has none.
    name: str | None
    #: Whether a call has to give it.
    required: bool
    #: The value if a call gives none.
    default: Any
    #: Whether a float array of a wider type is taken, too.
    allow_downcast: bool | None


@dataclass(frozen=True)
class Original:
    """A compiled function's graph as it was before Theano's optimizer."""

    #: Of the function; None if it has none.
    name: str | None
    arguments: list[CallArgument]
    outputs: list[Variable]
    #: Shared variable to its next value.
    updates: dict[SharedVariable, Variable]
    #: All shared variables, in the order of the function's inputs.
    shared: list[SharedVariable]
    #: Whether the function returns one value and no list, and by which names.
    returns_one: bool
    output_keys: list[str] | None
    #: The optimizer that the function was compiled with.
    optimizer: Any

    @property
    def nodes(self) -> list[Any]:
        """All nodes, in topological order."""
        inputs = [argument.variable for argument in self.arguments]
        return io_toposort([*inputs, *self.shared], [*self.outputs, *self.updates.values()])


def original_of(function: Function) -> Original:
    """Return the graph of a compiled function as the user wrote it.

    Theano keeps it beside the optimized one, also in pickles.

    Raises
    ------
    TypeError
        If it is no compiled function, or has inputs that its calls update.
    """
    if not isinstance(function, Function):
        raise TypeError(f"expected a compiled function, as theano.function returns it, and not {function!r}")
    arguments, updates, shared = [], {}, []
    for spec, (required, _, value) in zip(function.maker.inputs, function.defaults, strict=True):
        if isinstance(spec.variable, SharedVariable):
            shared.append(spec.variable)
            if spec.update is not None:
                updates[spec.variable] = spec.update
            continue
        if spec.update is not None:
            raise TypeError(
                f"the input {spec.variable} has an update, so that its value lives in the function. Copies of a "
                "function need values that have a name.\nThe cure: make it a shared variable"
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
    """Compile a graph for the host without C code: a simulator computes it.

    If `borrow`, results may be overwritten by the next call. Inputs that nothing depends on are taken all the same.
    """
    return _function(
        # Not borrowed: Theano compares the memory of each pair of a function's inputs where one is.
        list(inputs),
        [Out(var, borrow=borrow) for var in outputs],
        updates=list(updates.items()),
        mode=Mode(linker="py", optimizer=optimizer),
        no_default_updates=True,
        on_unused_input="ignore",
        name=name,
    )


def held_variable(var: Variable, name: str) -> SharedVariable:
    """Return a new shared variable for values of a tensor variable: it has none yet, but an array without elements.

    A function that gives its next value does not read the present one, and may overwrite it even if it raises.
    """
    shape = [int(is_one) for is_one in var.type.broadcastable]
    held = _shared(np.zeros(shape, var.type.dtype), name, broadcastable=var.type.broadcastable)
    held.tag.is_scratch = True
    return held


def int_scalar(name: str) -> TensorVariable:
    """Return a new input: a whole number."""
    number: TensorVariable = tensor.lscalar(name)
    return number
