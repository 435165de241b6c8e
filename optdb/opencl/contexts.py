"""Named OpenCL contexts, and the choice of a context for an op.

`contexts` maps names to contexts; `infer_context_name` chooses a context from an op's inputs.
"""

from __future__ import annotations

from collections.abc import Hashable

from optdb.host.api.graph import Variable
from optdb.opencl.registry import DEFAULT_NAME, ContextNotDefined, contexts, get_context
from optdb.opencl.transfers import HostFromOpenCL
from optdb.opencl.type import OpenCLArrayType

__all__ = ["DEFAULT_NAME", "ContextNotDefined", "MixedContexts", "contexts", "get_context", "infer_context_name"]


class MixedContexts(ValueError):
    """An op's inputs belong to more than one context."""


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
