"""Uniform random numbers of NumPy's bit generator PCG64, bitwise equal to NumPy's.

The state is a number of 128 bits; a step multiplies it by a factor and adds the increment. Several steps are equivalent
to one with other factors (`jump`), so each work item computes its own first state. Sources: M. E. O'Neill, PCG: A
Family of Simple Fast Space-Efficient Statistically Good Algorithms for Random Number Generation (2014); F. B. Brown,
Random Number Generation with Arbitrary Strides (1994).
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from optdb.codegen.kernels import Kernel
from optdb.codegen.layout import chunks
from optdb.codegen.operation import Kernels, Operation, Outputs, output_array
from optdb.codegen.source import functions, typed
from optdb.numpy_types import HostArray

__all__ = ["PCG64Numbers", "advanced", "state_words"]

FACTOR = 0x2360ED051FC65DA44385DF649FCCF645
_MODULUS = 1 << 128
_WORD = (1 << 64) - 1

#: Minimum number of samples per GPU work item, whose first state takes as long as several samples.
LEAST_PER_ITEM = 8
#: Maximum number of work items per compute unit of a GPU.
ITEMS_PER_UNIT = 2048

_KERNELS = functions("pcg64.cl")
_HELPERS = "typedef struct { ulong low, high; } pcg_number;\n" + "".join(
    _KERNELS[f"pcg_{name}"] for name in ("of", "high", "times", "carry", "plus", "after", "word")
)

#: Maps the dtype, and whether the interval is open, to a number's expression. NumPy's numbers are multiples of 2^-53 in
#: [0, 1), and a rounded float32 may be 1. Numbers in (0, 1) are odd multiples.
_NUMBERS = {
    ("float64", False): "convert_double(word >> 11) * 0x1p-53",
    ("float32", False): "convert_float_rte(word >> 11) * 0x1p-53f",
    ("float64", True): "convert_double((word >> 11) | 1) * 0x1p-53",
    ("float32", True): "convert_float((word >> 40) | 1) * 0x1p-24f",
}


@functools.lru_cache(maxsize=1024)
def jump(steps: int) -> tuple[int, int]:
    """Return the factor of the state, and the factor of the increment, after a number of steps."""
    powers = pow(FACTOR, steps, (FACTOR - 1) * _MODULUS)
    return powers % _MODULUS, (powers - 1) // (FACTOR - 1) % _MODULUS


def advanced(state: int, increment: int, steps: int) -> int:
    """Return the state after a number of steps."""
    factor, summand = jump(steps)
    return (factor * state + summand * increment) % _MODULUS


def state_words(state: int, increment: int) -> HostArray:
    """Return the state and the increment as four words, the low word of each first."""
    return np.array([state & _WORD, state >> 64, increment & _WORD, increment >> 64], "uint64")


@dataclass(eq=False)
class PCG64Numbers(Operation):
    """The next uniform random numbers of a PCG64 generator, a vector.

    The inputs are the generator's `state_words` on the device, and the number of samples (a host integer).
    """

    #: 'float64', or 'float32'.
    dtype: str
    #: Whether numbers are in (0, 1), rather than in [0, 1) as in NumPy.
    is_open: bool = False

    def kernels(self) -> list[Kernel]:
        on_processor = self.context.profile.runs_items_serially
        words = {
            "FACTOR_LOW": f"{FACTOR & _WORD}ul",
            "FACTOR_HIGH": f"{FACTOR >> 64}ul",
            "DRAW": _NUMBERS[self.dtype, self.is_open],
            "ON_PROCESSOR": int(on_processor),
        }
        kernel = _KERNELS["pcg64_by_chunk" if on_processor else "pcg64_by_stride"]
        return [Kernel(typed(_HELPERS + kernel, self.dtype, **words))]

    def run(self, inputs: Sequence[Any], outputs: Outputs, kernels: Kernels) -> None:
        state, n = inputs
        out = output_array(outputs[0], self.context, (n,), self.dtype)
        if not out.size:
            return
        ((name, kernel),) = kernels.items()
        if name == "pcg64_by_chunk":
            items, each = chunks(self.context, n)
            kernel.call(items, 1, n, each, state, out)
            return
        items = min(-(-n // LEAST_PER_ITEM), self.context.profile.compute_units * ITEMS_PER_UNIT)
        factors = [word for factor in jump(items) for word in (factor & _WORD, factor >> 64)]
        kernel.scall(items, n, items, *factors, state, out)
