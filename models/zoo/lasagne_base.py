"""Common code of the Lasagne models: the import of Lasagne, and the model of a training step."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np
from theano.gof.graph import Variable

from models.registry import Entry, register
from models.zoo.captured import unique_updates
from profiles.models import Model


class Step:
    """A training step: the arguments of theano.function, the loss first, and arrays for the inputs."""

    def __init__(self, inputs: list[Variable], outputs: list[Variable], updates: OrderedDict, data: list[Any]):
        self.inputs, self.outputs, self.updates, self.data = inputs, outputs, updates, data


Maker = Callable[..., Step]


def lasagne_model(name: str) -> Callable[[Maker], Maker]:
    """Register the decorated maker of a training step; the maker takes Lasagne, a random generator, and sizes."""

    def enter(maker: Maker) -> Maker:
        def build(name: str, **sizes: object) -> Model:
            rng = np.random.RandomState(13)
            step = maker(import_lasagne(), rng, **sizes)
            typed = [np.asarray(value, symbol.type.dtype) for symbol, value in zip(step.inputs, step.data, strict=True)]
            return Model(name, step.inputs, step.outputs, unique_updates(step.updates), typed)

        build.__doc__ = maker.__doc__
        register(Entry(name, "Lasagne", build, "float32"))
        return maker

    return enter


def import_lasagne() -> ModuleType:
    """Import Lasagne, and reset the seeds of initial weights and noise, so that each build draws the same numbers."""
    import lasagne

    lasagne.random.set_rng(np.random.RandomState(13))
    return lasagne
