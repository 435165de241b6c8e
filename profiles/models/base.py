"""The class of models, and the table of known models by name.

A builder is a function that takes sizes as keyword arguments and returns a `Model`. `register` adds a builder to the
table under a name, with the sizes that belong to the name; `build` calls the builder. The other modules in this folder
register their models when they are imported.
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
    """A symbolic function, with everything that is needed to compile and run it once.

    Updates are in the order in which shared variables were created. Each build creates equal data.
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
    """Raised if there is no model of that name."""

    def __str__(self) -> str:
        return self.args[0]


Builder = Callable[..., Model]

_builders: dict[str, Builder] = {}
_sizes: dict[str, dict[str, object]] = {}


def register(name: str, available: bool = True, **sizes: object) -> Callable[[Builder], Builder]:
    """Add the decorated builder to the table under `name`, which stands for these `sizes`.

    The name stays unknown unless the libraries of the builder are `available`.
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
    """Build a model from `known`; `sizes` replace the sizes that belong to the name."""
    if name not in _builders:
        raise UnknownModel(f"no model is named {name!r}; known are: {', '.join(known())}")
    return _builders[name](name, **{**_sizes[name], **sizes})
