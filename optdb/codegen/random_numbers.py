"""Random numbers, bitwise equal to the host's: Theano's MRG31k3p with draws from distributions, and NumPy's PCG64.

The state of MRG31k3p is an int32 matrix with a row of six numbers for each stream; sample i is the next number of
stream ``i % n_streams``. Several steps of PCG64 are equivalent to one step with other factors (`jump`), so each work
item can jump to its own first state. Sources: P. L'Ecuyer and R. Touzin, Fast Combined Multiple Recursive Generators
with Multipliers of the form a = +/- 2^d +/- 2^e (2000); M. E. O'Neill, PCG: A Family of Simple Fast Space-Efficient
Statistically Good Algorithms for Random Number Generation (2014); F. B. Brown, Random Number Generation with Arbitrary
Strides (1994).
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from optdb.codegen.kernels import Kernel, ctype
from optdb.codegen.layout import (
    CHUNKS_PER_UNIT,
    broadcast_strides,
    chunks,
    launch_chunks,
    launch_striding,
    share,
    steps_of,
)
from optdb.codegen.operation import ArraySpec, Kernels, Operation, Outputs, output_array
from optdb.codegen.source import ROUND_EACH_STEP, filled, functions, type_words, typed, work_dtype
from optdb.numpy_types import HostArray
from optdb.runtime.arrays import copy, empty
from optdb.runtime.sizes import lengths_of

MOST = 2**31 - 1

#: Number of streams in a vector on CPUs.
LANES = 16

_MRG_KERNELS = functions("mrg31k3p.cl")

#: Maps the dtype of samples to code that converts a step's integer to floating point, and to the factor that scales the
#: result. For float16, the integer is reduced to its last 15 bits, so that no sample becomes 1. This integer plus one,
#: times 511 / 2^24, is exact in float32, and is then rounded once.
_SCALED = {
    "float16": ("convert_float{v}(({step} & 0x7fff) + 1)", float(511 * 2.0**-24)),
    "float32": ("convert_float{v}({step})", float(np.float32(4.6566126e-10))),
    "float64": ("convert_double{v}({step})", 4.656612873077392578125e-10),
}


@dataclass(eq=False)
class UniformNumbers(Operation):
    """Uniform random numbers between 0 and 1, and the next state of the generator.

    The inputs are the state (int32 of shape (n_streams, 6)) and the shape of the sample (a host vector). The outputs
    are the new state and the sample.
    """

    dtype: str
    ndim: int
    #: Whether the new state overwrites the old state.
    inplace: bool = False

    def __post_init__(self) -> None:
        sample_dtype(self.dtype)

    def kernels(self) -> list[Kernel]:
        return [_kernel(self.dtype, self.context.profile.needs_explicit_vectors)]

    def run(self, inputs: Sequence[Any], outputs: Outputs, kernels: Kernels) -> None:
        old, size = inputs
        shape = self._checked(size)
        if old.shape[1] != 6 or not old.shape[0]:
            raise ValueError(f"rstate must have 6 columns, and a row for each stream; its shape is {old.shape}")
        sample = output_array(outputs[1], self.context, shape, self.dtype)
        state = outputs[0][0] = old if self.inplace and old.flags.c_contiguous else copy(old)
        if not sample.size:
            return
        (kernel,) = kernels.values()
        n, streams, profile = sample.size, state.shape[0], self.context.profile
        if not profile.runs_items_serially:
            kernel.scall(streams, n, streams, 1, state, sample)
            return
        items, each = share(streams, profile.compute_units * CHUNKS_PER_UNIT, multiple=LANES)
        kernel.call(items, 1, n, streams, each, state, sample)

    def _checked(self, size: Any) -> tuple[Any, ...]:
        shape = tuple(lengths_of(size))
        if len(shape) != self.ndim:
            raise ValueError(f"size must have length {self.ndim} (not {len(shape)})")
        if any(length < 0 for length in shape):
            raise ValueError(f"negative lengths are not allowed in the size of a sample: {shape}")
        if math.prod(shape) > MOST:
            raise ValueError(f"rng_mrg does not support more than (2**31 -1) samples, and {shape} has more")
        return shape


def sample_dtype(dtype: str) -> str:
    """Return `dtype`; raise TypeError if samples cannot have this dtype."""
    if dtype not in _SCALED:
        raise TypeError(f"random numbers can be {', '.join(_SCALED)}, not {dtype}")
    return dtype


def _kernel(dtype: str, vector: bool) -> Kernel:
    sample = _scaled(dtype, "", "x")
    if not vector:
        return Kernel(ROUND_EACH_STEP + _step("") + typed(_MRG_KERNELS["mrg_by_stream"], dtype, SAMPLE=sample))
    half = dtype == "float16"
    code = typed(
        _MRG_KERNELS["mrg_in_vectors"],
        dtype,
        SAMPLE=sample,
        SAMPLES=_scaled(dtype, str(LANES), "v"),
        STORE_SAMPLES=f"vstore_half{LANES}_rte" if half else f"vstore{LANES}",
        STORED="half" if half else ctype(dtype),
        LANES=LANES,
        UINT=f"uint{LANES}",
        VLOAD=f"vload{LANES}",
        VSTORE=f"vstore{LANES}",
    )
    return Kernel(ROUND_EACH_STEP + _step("") + _step(str(LANES)) + code)


def _step(lanes: str) -> str:
    words = {name: f"{name.lower()}{lanes}" for name in ("INT", "UINT", "AS_INT", "AS_UINT")}
    return filled(_MRG_KERNELS["STEP"], STEP=f"mrg_step{lanes}", **words)


def _scaled(dtype: str, lanes: str, state: str) -> str:
    whole, factor = _SCALED[dtype]
    literal = factor.hex() + ("" if dtype == "float64" else "f")
    return f"{whole.format(v=lanes, step=f'mrg_step{lanes}({state})')} * {literal}"


_DRAW_KERNELS = functions("draws.cl")


@dataclass(eq=False)
class CountDraws(Operation):
    """The number of times each outcome is drawn, for each row of probabilities.

    The inputs are the probabilities, the random numbers, and the number of draws (a host integer). The random numbers
    are a vector with the first draw of every row, then the second draw of every row, and so on. As in Theano's C code,
    probabilities are accumulated in double precision.
    """

    #: The name of the kernel, and whether this kernel works on a copy of the probabilities.
    kernel: ClassVar[str] = "count_draws"
    changes_probabilities: ClassVar[bool] = False

    #: Specs of the probabilities and of the random numbers, both floating-point.
    p: ArraySpec
    u: ArraySpec
    dtype: str
    replace: bool = False

    def kernels(self) -> list[Kernel]:
        words = {**type_words(self.p.dtype, "P_"), **type_words(self.u.dtype, "U_"), "REPLACE": int(self.replace)}
        return [Kernel(ROUND_EACH_STEP + typed(_DRAW_KERNELS[self.kernel], self.dtype, **words))]

    def run(self, inputs: Sequence[Any], outputs: Outputs, kernels: Kernels) -> None:
        p, u, n = inputs[0], inputs[1], int(inputs[2])
        columns = self._columns(p.shape[1], n)
        if u.shape[0] != p.shape[0] * n:
            raise ValueError(
                f"unis.shape[0] != pvals.shape[0] * n: {u.shape[0]} numbers for {n} draws of {p.shape[0]} rows"
            )
        out = output_array(outputs[0], self.context, (p.shape[0], columns), self.dtype)
        left = [empty(self.context, p.shape, work_dtype(p.dtype))] if self.changes_probabilities else []
        args = [*p.shape, n, p, *steps_of(p), u, *steps_of(u), out, *left]
        launch_striding(kernels[self.kernel], self.context, *args)

    def _columns(self, outcomes: int, draws: int) -> int:
        return outcomes


class ChooseOutcomes(CountDraws):
    """The outcomes drawn for each row of probabilities, as in `CountDraws`; -1 if the row's sum is too small."""

    kernel, changes_probabilities = "choose", True

    def _columns(self, outcomes: int, draws: int) -> int:
        if draws > outcomes:
            raise ValueError(
                "Cannot sample without replacement n samples bigger than the size of the distribution: "
                f"{draws} of {outcomes}"
            )
        return draws


@dataclass(eq=False)
class FirstOutcomes(Operation):
    """The first outcome whose accumulated probability is not less than a random number, as in `numpy.searchsorted`.

    The inputs are the probabilities (one row for each random number, or one row for all), and the random numbers (a
    vector). Probabilities are accumulated in their own dtype, as in `numpy.cumsum`.
    """

    #: Specs of the probabilities and of the random numbers, both float32 or float64.
    p: ArraySpec
    u: ArraySpec
    dtype: str

    def kernels(self) -> list[Kernel]:
        words = {**type_words(self.p.dtype, "P_"), **type_words(self.u.dtype, "U_")}
        return [Kernel(ROUND_EACH_STEP + typed(_DRAW_KERNELS["first_outcomes"], self.dtype, **words))]

    def run(self, inputs: Sequence[Any], outputs: Outputs, kernels: Kernels) -> None:
        p, u = inputs
        out = output_array(outputs[0], self.context, u.shape, self.dtype)
        if not out.size:
            return
        args = [p.shape[1], p, *broadcast_strides(p), u, *steps_of(u), out]
        launch_chunks(kernels["first_outcomes"], self.context, out.size, *args)


FACTOR = 0x2360ED051FC65DA44385DF649FCCF645
_MODULUS = 1 << 128
_WORD = (1 << 64) - 1

#: Minimum number of samples per GPU work item: computing its first state takes as long as drawing several samples.
LEAST_PER_ITEM = 8
#: Maximum number of work items per compute unit of a GPU.
ITEMS_PER_UNIT = 2048

_PCG_KERNELS = functions("pcg64.cl")
_HELPERS = "typedef struct { ulong low, high; } pcg_number;\n" + "".join(
    _PCG_KERNELS[f"pcg_{name}"] for name in ("of", "high", "times", "carry", "plus", "after", "word")
)

#: Maps the dtype, and whether the interval is open, to the expression for a random number. In [0, 1), the numbers are
#: multiples of 2^-53 as in NumPy; rounded to float32, a number may become 1. Numbers in (0, 1) are odd multiples of
#: 2^-53 for float64, and of 2^-24 for float32.
_NUMBERS = {
    ("float64", False): "convert_double(word >> 11) * 0x1p-53",
    ("float32", False): "convert_float_rte(word >> 11) * 0x1p-53f",
    ("float64", True): "convert_double((word >> 11) | 1) * 0x1p-53",
    ("float32", True): "convert_float((word >> 40) | 1) * 0x1p-24f",
}


@functools.lru_cache(maxsize=1024)
def jump(steps: int) -> tuple[int, int]:
    """Return the factors of the state and of the increment in a single step that replaces `steps` steps."""
    powers = pow(FACTOR, steps, (FACTOR - 1) * _MODULUS)
    return powers % _MODULUS, (powers - 1) // (FACTOR - 1) % _MODULUS


def advanced(state: int, increment: int, steps: int) -> int:
    """Return the state after a number of steps."""
    factor, summand = jump(steps)
    return (factor * state + summand * increment) % _MODULUS


def state_words(state: int, increment: int) -> HostArray:
    """Return the state and the increment as two 64-bit words each, with the low word first."""
    return np.array([state & _WORD, state >> 64, increment & _WORD, increment >> 64], "uint64")


@dataclass(eq=False)
class PCG64Numbers(Operation):
    """A vector of the next uniform random numbers from a PCG64 generator.

    The inputs are the generator's `state_words` on the device, and the number of samples (a host integer).
    """

    #: 'float64', or 'float32'.
    dtype: str
    #: Whether the numbers are in the interval (0, 1), rather than in [0, 1) as in NumPy.
    is_open: bool = False

    def kernels(self) -> list[Kernel]:
        on_processor = self.context.profile.runs_items_serially
        words = {
            "FACTOR_LOW": f"{FACTOR & _WORD}ul",
            "FACTOR_HIGH": f"{FACTOR >> 64}ul",
            "DRAW": _NUMBERS[self.dtype, self.is_open],
            "ON_PROCESSOR": int(on_processor),
        }
        kernel = _PCG_KERNELS["pcg64_by_chunk" if on_processor else "pcg64_by_stride"]
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
