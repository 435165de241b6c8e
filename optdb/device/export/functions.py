"""A function as a front end hands it over for a file: how it is called, and what it computes on another device."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import numpy as np

from optdb.device.plans.linked import LinkedFunction
from optdb.numpy_types import HostArray
from optdb.runtime.arrays import Array
from optdb.runtime.calling import Argument, Signature
from optdb.runtime.context import Context

__all__ = ["Exportable", "Held", "InputSpec", "Traceable"]


@dataclass(frozen=True, eq=False)
class Held:
    """A shared variable."""

    #: The same for all functions that share it.
    identity: Hashable
    name: str | None
    dtype: str
    broadcastable: tuple[bool, ...]
    #: Returns its present value.
    value: Callable[[], Any]


@dataclass(frozen=True, eq=False)
class InputSpec:
    """An input of a function, as a trace for an example knows it."""

    declared: Argument | Held
    #: The number of the argument, or of the shared variable in the file.
    number: int
    #: The value in the example; of a shared variable, only the shape matters.
    value: HostArray | Array

    @property
    def is_state(self) -> bool:
        """Whether it is a shared variable."""
        return isinstance(self.declared, Held)


@dataclass(frozen=True, eq=False)
class Traceable:
    """What a function computes, in a context that replaces its own."""

    #: The context of all its arrays.
    context: Context
    #: Enters a replacing context; returns the function with nodes and cells of its own, to be computed once. Its nodes
    #: run while a tracer listens, and raise `Untraceable` for what a file cannot hold.
    linked_in: Callable[[Context], AbstractContextManager[LinkedFunction]]
    #: The dtypes of the outputs that the caller gets: the first ones. The others are next values.
    result_dtypes: Sequence[str]
    #: Why it is traced for the shapes of each example alone; None if its lengths may be symbolic.
    fixed: str | None = None


@dataclass(frozen=True, eq=False)
class Exportable:
    """A function that can be written into a file."""

    #: Its own name, if it has one.
    name: str | None
    computes: Traceable
    signature: Signature
    #: For each input, the number of its argument, or the shared variable.
    inputs: Sequence[int | Held]
    #: Returns the arguments of earlier calls, as far as they are remembered, the last one first: the shape of each, and
    #: its value if that is known.
    calls: Callable[[], Sequence[Sequence[tuple[tuple[int, ...], Any]]]] = tuple

    def examples(self) -> list[list[HostArray]]:
        """Return examples like the latest calls."""
        dtypes = [argument.dtype for argument in self.signature.arguments]
        return [
            [
                np.zeros(shape, dtype) if value is None else np.asarray(value, dtype)
                for (shape, value), dtype in zip(call, dtypes, strict=True)
            ]
            for call in self.calls()
        ]
