"""What `inspect.signature` says of a compiled function: its inputs, by name, with their types and defaults."""

from __future__ import annotations

import keyword
from inspect import Parameter, Signature
from typing import Any

from optdb.host.compiled import Function

__all__ = ["signature_of"]


def signature_of(function: Function) -> Signature:
    """Return how a compiled function is called.

    Inputs without a name of their own are positional only, and so are those before them; an input without a default
    that comes after one with a default is keyword only. Shared variables are no parameters.
    """
    taken = [
        (spec, required)
        for spec, (required, _, _) in zip(function.maker.inputs, function.defaults, strict=True)
        if not getattr(spec, "implicit", False) and not spec.shared
    ]
    names = _names([spec.name for spec, _ in taken])
    last_nameless = max((i for i, (spec, _) in enumerate(taken) if names[i] != spec.name), default=-1)
    parameters = []
    optional = False
    for i, (spec, required) in enumerate(taken):
        kind = Parameter.POSITIONAL_ONLY if i <= last_nameless else Parameter.POSITIONAL_OR_KEYWORD
        if optional and required:
            kind = Parameter.KEYWORD_ONLY
        optional = optional or not required
        default = Parameter.empty if required else _default(spec)
        parameters.append(Parameter(names[i], kind, default=default, annotation=str(spec.variable.type)))
    parameters.sort(key=lambda parameter: parameter.kind)
    return Signature(parameters)


def _names(given: list[str | None]) -> list[str]:
    """Return a name for each input: its own, if that is an identifier that nobody else has."""
    return [
        name
        if name is not None and name.isidentifier() and not keyword.iskeyword(name) and given.count(name) == 1
        else f"input_{i}"
        for i, name in enumerate(given)
    ]


def _default(spec: Any) -> Any:
    """Return the value that stands for an input that is not given."""
    return getattr(spec.value, "data", spec.value) if hasattr(spec.value, "storage") else spec.value
