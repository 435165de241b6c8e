"""Defines the class of models, and the table of known models by name.

A builder is a function that takes sizes as keyword arguments and returns a `Model`. `register` adds a builder to the
table under a name, with default sizes; `build` calls the builder. The other modules in this folder register their
models when they are imported.
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
    """A symbolic function with its updates, and data to call it with.

    The updates are in the order in which the shared variables were created. Each time the model is built, the data are
    equal.
    """

    name: str
    inputs: list[Variable]
    outputs: list[Variable]
    updates: OrderedDict
    data: list[np.ndarray]


def shared_variables(model: Model) -> list[SharedVariable]:
    """Return the shared variables of a model, including those with default updates."""
    roots = [*model.outputs, *model.updates.values()]
    found = [var for var in graph.inputs(roots) if isinstance(var, SharedVariable)]
    return list(dict.fromkeys([*found, *model.updates]))


class UnknownModel(KeyError):
    """Raised if there is no model with a given name."""

    def __str__(self) -> str:
        return self.args[0]


Builder = Callable[..., Model]

_builders: dict[str, Builder] = {}
_sizes: dict[str, dict[str, object]] = {}


def register(name: str, available: bool = True, **sizes: object) -> Callable[[Builder], Builder]:
    """Add the decorated builder to the table under `name`; the model with this name has these `sizes` by default.

    If the libraries that the builder needs are not `available`, nothing is added.
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
    """Return the names of all registered models, in the order of their registration."""
    return list(_builders)


def build(name: str, **sizes: object) -> Model:
    """Build the registered model with a given name; `sizes` replace default sizes."""
    if name not in _builders:
        raise UnknownModel(f"no model is named {name!r}; known are: {', '.join(known())}")
    return _builders[name](name, **{**_sizes[name], **sizes})
