"""Theano's names that lifting to a device uses: host arrays, traces, and ops with inner graphs."""

from __future__ import annotations

from theano.gof.toolbox import ReplaceValidate
from theano.tensor.type import TensorType as HostArrayType

from optdb.host.api.graph import Apply, FunctionGraph, Variable

__all__ = [
    "HostArrayType",
    "attach_validation",
    "copy_trace",
    "is_host_array",
    "rebuild",
    "replace_all",
]


def is_host_array(var: Variable) -> bool:
    """Tell whether a variable is a dense array on the host."""
    return isinstance(var.type, HostArrayType)


def attach_validation(fgraph: FunctionGraph) -> None:
    """Undo replacements in `fgraph` that break it, from now on."""
    fgraph.attach_feature(ReplaceValidate())


def replace_all(fgraph: FunctionGraph, pairs: list[tuple[Variable, Variable]], reason: str) -> None:
    """Replace all first variables by the second ones, at once; the graph stays as it was if that breaks it."""
    fgraph.replace_all_validate(pairs, reason=reason)


def copy_trace(old: Variable, new: Variable) -> None:
    """Copy the stack trace of `old` to its replacement `new`: the user's line, not optdb's."""
    trace = getattr(old.tag, "trace", None)
    if trace and new.owner is not None:
        new.tag.trace = trace


def rebuild(node: Apply, inputs: list[Variable]) -> Apply:
    """Return `node` with other inputs of the same types; `node` itself if they are the same."""
    if all(new is old for new, old in zip(inputs, node.inputs, strict=True)):
        return node
    return node.clone_with_new_inputs(inputs)
