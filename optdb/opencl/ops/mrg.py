"""Uniform random numbers of MRG31k3p, the same as the host's, bit by bit.

The state is a matrix of int32 with a row of six numbers for each stream. Sample i is
the next number of stream ``i % n_streams``. So streams are independent: a work item
takes one stream ('gpu', where neighbours write neighbours), or sixteen of them in
vectors ('cpu'), goes through all of their samples, and writes the new state.

State and sample stay on the device. Where the state is a shared variable of the host,
it is moved there and back each time, which is little: 24 bytes for each stream.

References
----------
P. L'Ecuyer and R. Touzin, Fast Combined Multiple Recursive Generators with Multipliers
of the form a = +/- 2^d +/- 2^e, Winter Simulation Conference, 2000.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from optdb.codegen.fp16 import work_dtype, write_w
from optdb.codegen.layout import CHUNKS_PER_UNIT
from optdb.host.creation import as_tensor_variable
from optdb.host.graph import Apply
from optdb.host.random import mrg_uniform_base
from optdb.opencl.kernels import (
    ARRAY,
    SIZE,
    CompiledKernel,
    Context,
    Kernel,
    Kernels,
    OpenCLKernelBase,
    Outputs,
    ctype,
    output_array,
)
from optdb.opencl.transfers import as_opencl_variable
from optdb.opencl.type import OpenCLArrayType
from optdb.runtime.arrays import Array, copy
from optdb.runtime.sizes import lengths_of

#: The larger modulus; as many samples can be asked for at a time.
MOST = 2**31 - 1

#: Streams that go through a vector on a processor.
LANES = 16

# One step of sixteen streams or of one. Everything is unsigned, as overflow of signed numbers is undefined, but
# for shifts and comparisons, which see the sign: a seed may be negative. Returned is a whole number below 2^31.
_STEP = """
static inline int{v} mrg_step{v}(uint{v} *x)
{{
uint{v} y = ((x[1] & 511u) << 22) + as_uint{v}(as_int{v}(x[1]) >> 9)
    + ((x[2] & 16777215u) << 7) + as_uint{v}(as_int{v}(x[2]) >> 24);
y = y >= MRG_M1 ? y - MRG_M1 : y;
y += x[2];
y = y >= MRG_M1 ? y - MRG_M1 : y;
x[2] = x[1];
x[1] = x[0];
x[0] = y;
uint{v} z = ((x[3] & 65535u) << 15) + 21069u * as_uint{v}(as_int{v}(x[3]) >> 16);
z = z >= MRG_M2 ? z - MRG_M2 : z;
y = ((x[5] & 65535u) << 15) + 21069u * as_uint{v}(as_int{v}(x[5]) >> 16);
y = y >= MRG_M2 ? y - MRG_M2 : y;
y += x[5];
y = y >= MRG_M2 ? y - MRG_M2 : y;
y += z;
y = y >= MRG_M2 ? y - MRG_M2 : y;
x[5] = x[4];
x[4] = x[3];
x[3] = y;
const uint{v} difference = x[0] - x[3];
return as_int{v}(as_int{v}(x[0]) <= as_int{v}(x[3]) ? difference + MRG_M1 : difference);
}}
"""

_HEAD = """
#pragma OPENCL FP_CONTRACT OFF
#define MRG_M1 2147483647u
#define MRG_M2 2147462579u
"""

_KERNEL = """
OUTLINED_KERNEL void {name}(ga_size n, ga_size streams, ga_size each, GLOBAL_MEM uint *state, ga_size state_off,
    GLOBAL_MEM {stored} *z, ga_size z_off)
{{
state = (GLOBAL_MEM uint *)((GLOBAL_MEM char *)state + state_off);
z = (GLOBAL_MEM {stored} *)((GLOBAL_MEM char *)z + z_off);
{body}
}}
"""

_ONE_STREAM = """
const ga_size stream = get_global_id(0);
if (stream >= streams)
    return;
uint x[6];
for (int c = 0; c < 6; ++c)
    x[c] = state[stream * 6 + c];
for (ga_size i = stream; i < n; i += streams)
    z[i] = {sample};
for (int c = 0; c < 6; ++c)
    state[stream * 6 + c] = x[c];
"""

# Whole rounds of all streams in vectors, then what is left of the last one.
_VECTORS = """
const ga_size rounds = n / streams, rest = n % streams;
const ga_size stop = min((get_global_id(0) + 1) * each, streams);
for (ga_size first = get_global_id(0) * each; first < stop; first += {lanes}) {{{{
    const uint here = (uint)min((ga_size){lanes}, stop - first);
    uint lanes[6][{lanes}] = {{{{0}}}};
    for (uint l = 0; l < here; ++l)
        for (int c = 0; c < 6; ++c)
            lanes[c][l] = state[(first + l) * 6 + c];
    ga_size done = 0;
    if (here == {lanes}) {{{{
        uint{lanes} v[6];
        for (int c = 0; c < 6; ++c)
            v[c] = vload{lanes}(0, lanes[c]);
        for (; done < rounds; ++done) {{{{
            const {work}{lanes} sample = {vector};
            {store};
        }}}}
        for (int c = 0; c < 6; ++c)
            vstore{lanes}(v[c], 0, lanes[c]);
    }}}}
    for (uint l = 0; l < here; ++l) {{{{
        uint x[6];
        for (int c = 0; c < 6; ++c)
            x[c] = lanes[c][l];
        const ga_size last = rounds + (first + l < rest);
        for (ga_size k = done; k < last; ++k)
            z[k * streams + first + l] = {sample};
        for (int c = 0; c < 6; ++c)
            state[(first + l) * 6 + c] = x[c];
    }}}}
}}}}
"""

#: What the whole number of a step is multiplied with. A half takes its last 15 bits, so that no sample becomes 1:
#: then 511 / 2^24 times the next whole number is exact in a float, and rounded once.
_SCALED = {
    "float16": ("convert_float{v}(({step} & 0x7fff) + 1)", float(511 * 2.0**-24)),
    "float32": ("convert_float{v}({step})", float(np.float32(4.6566126e-10))),
    "float64": ("convert_double{v}({step})", 4.656612873077392578125e-10),
}


class OpenCLMRGUniform(OpenCLKernelBase, mrg_uniform_base):
    """Random numbers between 0 and 1, and the state from which the next ones are made.

    It is a child of the host's base class, so the host's own rewriter lets it overwrite its state.

    Parameters
    ----------
    output_type : OpenCLArrayType
        Of the sample: float16, float32 or float64.
    inplace : bool
        Whether the new state is written over the old one.
    """

    __props__ = ("output_type", "inplace")
    params_type = None

    def __init__(self, output_type: OpenCLArrayType, inplace: bool = False) -> None:
        if output_type.dtype not in _SCALED:
            raise TypeError(f"random numbers are of {', '.join(_SCALED)}, not {output_type.dtype}")
        super().__init__(output_type, inplace)

    def make_node(self, rstate: Any, size: Any) -> Apply:
        """Return the node for a state, int32 of shape (n_streams, 6), and the shape of the sample, on the host."""
        rstate = as_opencl_variable(rstate, self.output_type.context_name)
        if rstate.type.dtype != "int32" or rstate.type.ndim != 2:
            raise TypeError(f"{self} takes a state that is a matrix of int32, not {rstate.type}")
        return Apply(self, [rstate, as_tensor_variable(size)], [rstate.type(), self.output_type()])

    def gpu_kernels(self, node: Apply, name: str) -> list[Kernel]:
        return [_kernel(self.output_type.dtype, self.get_context(node).profile.needs_explicit_vectors)]

    def run(self, node: Apply, inputs: Sequence[Any], outputs: Outputs, kernels: Kernels, context: Context) -> None:
        rstate, size = inputs
        shape = self._checked(size)
        if rstate.shape[1] != 6 or not rstate.shape[0]:
            raise ValueError(f"rstate must have 6 columns, and a row for each stream; its shape is {rstate.shape}")
        sample = output_array(outputs[1], context, shape, self.output_type.dtype)
        state = rstate if self.inplace and rstate.flags.c_contiguous else copy(rstate)
        outputs[0][0] = state
        if sample.size:
            _launch(kernels["mrg"], context, sample, state)

    def _checked(self, size: Any) -> tuple[Any, ...]:
        shape = tuple(lengths_of(size))
        if len(shape) != self.output_type.ndim:
            raise ValueError(f"size must have length {self.output_type.ndim} (not {len(shape)})")
        if any(length < 0 for length in shape):
            raise ValueError(f"negative lengths are not allowed in the size of a sample: {shape}")
        if math.prod(shape) > MOST:
            raise ValueError(f"rng_mrg does not support more than (2**31 -1) samples, and {shape} has more")
        return shape


def _kernel(dtype: str, vector: bool) -> Kernel:
    work = ctype(work_dtype(dtype)).removeprefix("ga_")
    body = _VECTORS if vector else _ONE_STREAM
    store = f"vstore{LANES}(sample, 0, z + done * streams + first)"
    if dtype == "float16":
        store = f"vstore_half{LANES}_rte(sample, 0, (GLOBAL_MEM half *)(z + done * streams + first))"
    text = body.format(
        lanes=LANES,
        work=work,
        store=store,
        vector=_scaled(dtype, str(LANES), "v"),
        sample=f"{write_w(dtype)}({_scaled(dtype, '', 'x')})",
    )
    code = _HEAD + _STEP.format(v="") + (_STEP.format(v=LANES) if vector else "")
    code += _KERNEL.format(name="mrg", stored=ctype(dtype), body=text)
    return Kernel(code, "mrg", [SIZE, SIZE, SIZE, ARRAY, ARRAY], Kernel.get_flags(dtype))


def _scaled(dtype: str, lanes: str, state: str) -> str:
    """Return the next sample of some streams, in OpenCL C."""
    whole, factor = _SCALED[dtype]
    literal = factor.hex() + ("" if dtype == "float64" else "f")
    return f"{whole.format(v=lanes, step=f'mrg_step{lanes}({state})')} * {literal}"


def _launch(kernel: CompiledKernel, context: Context, sample: Array, state: Array) -> None:
    n, streams = sample.size, state.shape[0]
    if not context.profile.runs_items_serially:
        kernel.scall(streams, n, streams, 1, state, sample)
        return
    pieces = context.profile.compute_units * CHUNKS_PER_UNIT
    each = -(-streams // (pieces * LANES)) * LANES
    kernel.call(-(-streams // each), 1, n, streams, each, state, sample)
