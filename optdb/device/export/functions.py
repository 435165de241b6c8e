"""Descriptions of functions for export: signatures, and how to compute them on another device."""

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


@dataclass(frozen=True, eq=False)
class Held:
    """A shared variable."""

    #: Identifies the variable in all functions that share it.
    identity: Hashable
    name: str | None
    dtype: str
    broadcastable: tuple[bool, ...]
    #: Returns the current value.
    value: Callable[[], Any]


@dataclass(frozen=True, eq=False)
class InputSpec:
    """An input of a function that is traced for an example."""

    declared: Argument | Held
    #: The number of the argument, or of the shared variable in the file.
    number: int
    #: The value in the example; for a shared variable, only its shape matters.
    value: HostArray | Array

    @property
    def is_state(self) -> bool:
        """Whether the input is a shared variable."""
        return isinstance(self.declared, Held)


@dataclass(frozen=True, eq=False)
class Traceable:
    """The computation of a function, which can be run in a context that replaces the function's own."""

    #: The context of all its arrays.
    context: Context
    #: Enters a replacement context, and returns a copy of the function, which runs once while a tracer records. Its
    #: nodes raise `Untraceable` for anything that a file cannot hold.
    linked_in: Callable[[Context], AbstractContextManager[LinkedFunction]]
    #: The dtypes of the caller's outputs, which come first. The other outputs are next values.
    result_dtypes: Sequence[str]
    #: Why each trace is valid only for its example's shapes; None if lengths may be symbolic.
    fixed: str | None = None


@dataclass(frozen=True, eq=False)
class Exportable:
    """A function that can be written into a file."""

    #: The function's own name, if it has one.
    name: str | None
    computes: Traceable
    signature: Signature
    #: For each input, the number of its argument, or the shared variable.
    inputs: Sequence[int | Held]
    #: Returns the arguments of earlier calls, most recent first: each argument's shape, and its value if known.
    calls: Callable[[], Sequence[Sequence[tuple[tuple[int, ...], Any]]]] = tuple

    def examples(self) -> list[list[HostArray]]:
        """Return examples with the shapes of recent calls."""
        dtypes = [argument.dtype for argument in self.signature.arguments]
        return [
            [
                np.zeros(shape, dtype) if value is None else np.asarray(value, dtype)
                for (shape, value), dtype in zip(call, dtypes, strict=True)
            ]
            for call in self.calls()
        ]
