"""Random numbers: uniform ones of MRG31k3p, the same as the host's, bit by bit, and draws by them.

The state is a matrix of int32 with a row of six numbers for each stream. Sample i is the next number of stream
``i % n_streams``. So streams are independent: a work item takes one stream ('gpu', where neighbours write neighbours),
or sixteen of them in vectors ('cpu'), goes through all of their samples, and writes the new state. State and sample
stay on the device. A state that is a shared variable of the host is copied there and back on each call: 24 bytes for
each stream.

Draws are from distributions that the rows of a matrix give. A work item takes a row, and goes through its draws in the
host's order, so that the results are the host's: probabilities add up in double precision, and the first outcome at
which the sum is larger than the random number is drawn. "The host" is its C code; its Python code adds up in single
precision where outcomes are drawn without replacement.

References
----------
P. L'Ecuyer and R. Touzin, Fast Combined Multiple Recursive Generators with Multipliers
of the form a = +/- 2^d +/- 2^e, Winter Simulation Conference, 2000.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from optdb.codegen.layout import CHUNKS_PER_UNIT, launch_striding, share, steps_of
from optdb.codegen.source import ROUND_EACH_STEP, filled, functions, type_words, typed, work_dtype
from optdb.host.api.graph import Apply
from optdb.host.api.ops import ChoiceFromUniform, MultinomialFromUniform, mrg_uniform_base
from optdb.host.api.variables import as_tensor_variable
from optdb.opencl.kernels import Context, Kernel, Kernels, OpenCLKernelBase, Outputs, ctype, output_array
from optdb.opencl.ops.counterpart import Counterpart
from optdb.opencl.transfers import as_opencl_variable
from optdb.opencl.type import OpenCLArrayType
from optdb.runtime.arrays import copy, empty
from optdb.runtime.sizes import lengths_of

#: The larger modulus; as many samples can be asked for at a time.
MOST = 2**31 - 1

#: Streams that go through a vector on a processor.
LANES = 16

_KERNELS = functions("random.cl")

#: What the whole number of a step is multiplied with. A half takes its last 15 bits, so that no sample becomes 1:
#: then 511 / 2^24 times the next whole number is exact in a float, and rounded once.
_SCALED = {
    "float16": ("convert_float{v}(({step} & 0x7fff) + 1)", float(511 * 2.0**-24)),
    "float32": ("convert_float{v}({step})", float(np.float32(4.6566126e-10))),
    "float64": ("convert_double{v}({step})", 4.656612873077392578125e-10),
}


class OpenCLMRGUniform(OpenCLKernelBase, mrg_uniform_base):
    """Random numbers between 0 and 1, and the state from which the next ones are made.

    It is a child of the host's base class, so the host's own rewriter lets it overwrite its state (`inplace`).
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
        if not sample.size:
            return
        (kernel,) = kernels.values()
        n, streams = sample.size, state.shape[0]
        if not context.profile.runs_items_serially:
            kernel.scall(streams, n, streams, 1, state, sample)
            return
        items, each = share(streams, context.profile.compute_units * CHUNKS_PER_UNIT, multiple=LANES)
        kernel.call(items, 1, n, streams, each, state, sample)

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
    """Return the function that advances by one number as many streams as there are lanes."""
    words = {name: f"{name.lower()}{lanes}" for name in ("INT", "UINT", "AS_INT", "AS_UINT")}
    return filled(_KERNELS["STEP"], STEP=f"mrg_step{lanes}", **words)


def _scaled(dtype: str, lanes: str, state: str) -> str:
    """Return the next sample of some streams, in OpenCL C."""
    whole, factor = _SCALED[dtype]
    literal = factor.hex() + ("" if dtype == "float64" else "f")
    return f"{whole.format(v=lanes, step=f'mrg_step{lanes}({state})')} * {literal}"


class _FromUniform(Counterpart, OpenCLKernelBase):
    """The base of both ops: probabilities and random numbers are on the device, the number of draws is on the host."""

    device_inputs = slice(0, 2)

    #: The kernel, and whether it works on a copy of the probabilities.
    kernel: ClassVar[str]
    changes_probabilities: ClassVar[bool]

    def gpu_kernels(self, node: Apply, name: str) -> list[Kernel]:
        p, u, z = (x.type.dtype for x in (*node.inputs[:2], *node.outputs))
        words = {**type_words(p, "P_"), **type_words(u, "U_"), "REPLACE": int(getattr(self, "replace", False))}
        return [Kernel(ROUND_EACH_STEP + typed(_KERNELS[self.kernel], z, **words))]

    def run(self, node: Apply, inputs: Sequence[Any], outputs: Outputs, kernels: Kernels, context: Context) -> None:
        p, u, n = inputs[0], inputs[1], int(inputs[2])
        columns = self._columns(p.shape[1], n)
        if u.shape[0] != p.shape[0] * n:
            raise ValueError(
                f"unis.shape[0] != pvals.shape[0] * n: {u.shape[0]} numbers for {n} draws of {p.shape[0]} rows"
            )
        out = output_array(outputs[0], context, (p.shape[0], columns), node.outputs[0].type.dtype)
        left = [empty(context, p.shape, work_dtype(p.dtype))] if self.changes_probabilities else []
        args = [*p.shape, n, p, *steps_of(p), u, *steps_of(u), out, *left]
        launch_striding(kernels[self.kernel], context, *args)


class OpenCLMultinomialFromUniform(_FromUniform, MultinomialFromUniform):
    """How often each outcome was drawn, for each row of probabilities."""

    kernel, changes_probabilities = "count_draws", False

    def _columns(self, outcomes: int, draws: int) -> int:
        return outcomes


class OpenCLChoiceFromUniform(_FromUniform, ChoiceFromUniform):
    """Which outcomes were drawn, for each row of probabilities; -1 where the row adds up to too little."""

    kernel, changes_probabilities = "choose", True

    def _columns(self, outcomes: int, draws: int) -> int:
        if draws > outcomes:
            raise ValueError(
                "Cannot sample without replacement n samples bigger than the size of the distribution: "
                f"{draws} of {outcomes}"
            )
        return draws
