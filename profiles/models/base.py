"""What a model is, and the table of those that are known by name.

A builder is a function that takes sizes as keyword arguments and returns a `Model`. `register`
enters it in the table under a name, with the sizes that the name stands for; `build` calls it. The
modules beside this one do the registering when they are imported.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from theano.compile.sharedvalue import SharedVariable
from theano.gof import graph
from theano.gof.graph import Variable


@dataclass(frozen=True)
class Model:
    """A symbolic function with everything needed to compile it and to run it once.

    Parameters
    ----------
    name
        What reports call it.
    inputs
        The symbolic inputs.
    outputs
        What the function returns.
    updates
        New values of the shared variables, in the order in which they were made.
    data
        One array for each input, the same at each build.
    """

    name: str
    inputs: list[Variable]
    outputs: list[Variable]
    updates: OrderedDict
    data: list[np.ndarray]


def shared_variables(model: Model) -> list[SharedVariable]:
    """Return the shared variables of a model, those with default updates among them."""
    roots = [*model.outputs, *model.updates.values()]
    found = [var for var in graph.inputs(roots) if isinstance(var, SharedVariable)]
    return list(dict.fromkeys([*found, *model.updates]))


class UnknownModel(KeyError):
    """There is no model of that name."""

    def __str__(self) -> str:
        return self.args[0]


Builder = Callable[..., Model]

_builders: dict[str, Builder] = {}
_sizes: dict[str, dict[str, object]] = {}


def register(name: str, available: bool = True, **sizes: object) -> Callable[[Builder], Builder]:
    """Enter the decorated builder under `name`, which stands for these `sizes`.

    Parameters
    ----------
    name
        For `build`.
    available
        Whether what the builder needs is installed; if not, the name stays unknown.
    **sizes
        Keyword arguments of the builder.
    """

    def enter(builder: Builder) -> Builder:
        if not available:
            return builder
        if name in _builders:
            raise ValueError(f"a model named {name!r} is registered already")
        _builders[name] = builder
        _sizes[name] = sizes
        return builder

    return enter


def known() -> list[str]:
    """Names of all registered models, in the order of their registration."""
    return list(_builders)


def build(name: str, **sizes: object) -> Model:
    """Build the model called `name`.

    Parameters
    ----------
    name
        One of `known`.
    **sizes
        Replace the sizes that the name stands for.

    Raises
    ------
    UnknownModel
        The message lists the names that are known.
    """
    if name not in _builders:
        raise UnknownModel(f"no model is named {name!r}; known are: {', '.join(known())}")
    return _builders[name](name, **{**_sizes[name], **sizes})
