"""A drawn model."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Any

__all__ = ["Drawn"]


@dataclass(frozen=True)
class Drawn:
    """A drawn model.

    Parameters
    ----------
    words : str
        The description of the model.
    inputs, outputs : list
        The inputs and outputs of its function.
    updates : OrderedDict
        New values of shared variables.
    """

    words: str
    inputs: list[Any]
    outputs: list[Any]
    updates: OrderedDict[Any, Any] = field(default_factory=OrderedDict)
