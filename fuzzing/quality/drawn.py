"""A drawn model."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Any

__all__ = ["Drawn"]


@dataclass(frozen=True)
class Drawn:
    """A random model: a description in words, and the inputs, outputs and updates of the model's function."""

    words: str
    inputs: list[Any]
    outputs: list[Any]
    updates: OrderedDict[Any, Any] = field(default_factory=OrderedDict)
