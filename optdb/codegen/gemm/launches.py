"""A planned product, and what runs it.

A plan is a list of launches, made from numbers alone and remembered, and the memory that they need besides the arrays.
`run` hands them the arrays. The memory is one buffer for each context, which grows and stays: to get new memory costs
more than most products.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

import numpy as np

from optdb.codegen.kernels import SSIZES, CompiledKernel
from optdb.runtime.arrays import Array, empty
from optdb.runtime.commands import tracing

if TYPE_CHECKING:
    from optdb.runtime.context import Context


@dataclass(frozen=True)
class Launch:
    """One launch of a kernel.

    Parameters
    ----------
    kernel : str
        Its name.
    items, group : tuple of int
        How many work items, and how many of them in a group.
    sizes : tuple of numpy.ndarray
        Its numbers, packed.
    arrays : str
        What it works on, a letter each: a, b, y, z, or w for the memory besides.
    factors : str
        Which factors it takes: nothing; 'ab', alpha and beta; 'a1', alpha and 1.
    """

    kernel: str
    items: tuple[int, ...]
    group: tuple[int, ...]
    sizes: tuple[np.ndarray, ...]
    arrays: str
    factors: str = ""


@dataclass(frozen=True)
class GemmPlan:
    """Launches one after the other.

    Parameters
    ----------
    launches : sequence of Launch
        In order.
    memory : int
        Numbers of the dtype computed in that they need besides the arrays.
    """

    launches: Sequence[Launch] = field(default_factory=tuple)
    memory: int = 0


def pack(*numbers: int) -> np.ndarray:
    """Return numbers as a launch takes them."""
    return SSIZES.pack(numbers)


def run(
    plan: GemmPlan,
    kernels: Mapping[str, CompiledKernel],
    context: Context,
    arrays: Mapping[str, Array],
    alpha: float,
    beta: float,
    work: str,
) -> None:
    """Launch what was planned.

    Parameters
    ----------
    plan : GemmPlan
        What.
    kernels : mapping
        Compiled, by name.
    context : Context
        Where.
    arrays : mapping
        From the letters a, b, y and z.
    alpha, beta : float
        Factors.
    work : str
        The dtype computed in.
    """
    factors = {"": (), "ab": (alpha, beta), "a1": (alpha, 1.0)}

    def launch(arrays: Mapping[str, Array]) -> None:
        for step in plan.launches:
            given = [arrays[letter] for letter in step.arrays]
            kernels[step.kernel].call(step.items, step.group, *step.sizes, *factors[step.factors], *given)

    if not plan.memory:
        launch(arrays)
        return
    with _using_scratch:
        launch({**arrays, "w": scratch(context, plan.memory, work)})


_scratch: WeakKeyDictionary[Context, Array] = WeakKeyDictionary()
#: Held until all launches that use it are in the queue, so that those of another thread come behind them.
_using_scratch = threading.Lock()


def scratch(context: Context, length: int, dtype: str) -> Array:
    """Return memory for what is forgotten after the next launches: the same for all, one after the other.

    Parameters
    ----------
    context : Context
        Where.
    length : int
        How many numbers it holds, at least.
    dtype : str
        Of what dtype.
    """
    nbytes = length * np.dtype(dtype).itemsize
    if tracing() is not None:
        # Which is larger may depend on shapes; places are shared in another way.
        return empty(context, (nbytes,), np.uint8)
    kept = _scratch.get(context)
    if kept is None or kept.nbytes < nbytes:
        _scratch.pop(context, None)
        # A WeakKeyDictionary's value must not hold its key: an array knows the queue, not the context.
        kept = _scratch[context] = empty(context, (nbytes,), np.uint8)
    return kept
