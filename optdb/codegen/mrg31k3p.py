"""Uniform random numbers of MRG31k3p, bitwise equal to Theano's.

The state is an int32 matrix with a row of six numbers for each stream. Sample i is the next number of stream
``i % n_streams``, so streams are independent. A work item takes one stream on GPUs, so that writes are coalesced, or
sixteen streams in a vector on CPUs. It generates all of their samples and writes the new state. State and samples stay
on the device.

References
----------
P. L'Ecuyer and R. Touzin, Fast Combined Multiple Recursive Generators with Multipliers
of the form a = +/- 2^d +/- 2^e, Winter Simulation Conference, 2000.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from optdb.codegen.kernels import Kernel, ctype
from optdb.codegen.layout import CHUNKS_PER_UNIT, share
from optdb.codegen.operation import Kernels, Operation, Outputs, output_array
from optdb.codegen.source import ROUND_EACH_STEP, filled, functions, typed
from optdb.runtime.arrays import copy
from optdb.runtime.sizes import lengths_of

#: The larger modulus; also the most samples of one call.
MOST = 2**31 - 1

#: Streams in a vector on CPUs.
LANES = 16

_KERNELS = functions("mrg31k3p.cl")

#: The integer of a step and the factor that scales it, by dtype of samples. A half takes the last 15 bits, so that no
#: sample becomes 1: then 511 / 2^24 times the integer plus one is exact in float32, and rounded once.
_SCALED = {
    "float16": ("convert_float{v}(({step} & 0x7fff) + 1)", float(511 * 2.0**-24)),
    "float32": ("convert_float{v}({step})", float(np.float32(4.6566126e-10))),
    "float64": ("convert_double{v}({step})", 4.656612873077392578125e-10),
}


@dataclass(eq=False)
class UniformNumbers(Operation):
    """Uniform random numbers between 0 and 1, and the next state of the generator.

    The inputs are the state, int32 of shape (n_streams, 6), and the shape of the sample, a host vector. The outputs are
    the new state and the sample.
    """

    #: Floating-point dtype of the sample.
    dtype: str
    #: Number of axes of the sample.
    ndim: int
    #: Whether the new state overwrites the old one.
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
    """Return `dtype`; raise TypeError if samples cannot have it."""
    if dtype not in _SCALED:
        raise TypeError(f"random numbers are of {', '.join(_SCALED)}, not {dtype}")
    return dtype


def _kernel(dtype: str, vector: bool) -> Kernel:
    sample = _scaled(dtype, "", "x")
    if not vector:
        return Kernel(ROUND_EACH_STEP + _step("") + typed(_KERNELS["mrg_by_stream"], dtype, SAMPLE=sample))
    half = dtype == "float16"
    code = typed(
        _KERNELS["mrg_in_vectors"],
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
    """Return the OpenCL C function that advances one stream per lane by one number."""
    words = {name: f"{name.lower()}{lanes}" for name in ("INT", "UINT", "AS_INT", "AS_UINT")}
    return filled(_KERNELS["STEP"], STEP=f"mrg_step{lanes}", **words)


def _scaled(dtype: str, lanes: str, state: str) -> str:
    """Return the OpenCL C expression of the next sample of each lane."""
    whole, factor = _SCALED[dtype]
    literal = factor.hex() + ("" if dtype == "float64" else "f")
    return f"{whole.format(v=lanes, step=f'mrg_step{lanes}({state})')} * {literal}"
