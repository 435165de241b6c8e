"""Batch normalization: for training, with its gradient, and for inference.

Each channel has its own numbers: arrays of length 1 along the axes that are normalized over.
Training launches three kernels. The first goes over the elements of each channel (or a part of them,
while that is in the cache) for the mean, and then for the deviations from it. The second merges the
parts and computes the factor of every element. The third normalizes. Parts are merged as in Chan,
Golub and LeVeque, Updating formulae and a pairwise algorithm for computing sample variances (1979).
The gradient launches three kernels likewise, and inference two.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from optdb.codegen.batch_norm.channel_maps import ChannelMap, launch_numbers
from optdb.codegen.batch_norm.channel_reductions import ChannelFold, Pass
from optdb.codegen.batch_norm.channels import Channels, Runs
from optdb.codegen.elements import contiguous, copying
from optdb.codegen.layout import check_shapes
from optdb.codegen.source import ROUND_EACH_STEP, filled, functions, typed, work_dtype
from optdb.host.api import ops as host
from optdb.host.api.graph import Apply
from optdb.opencl.kernels import Context, Kernel, Kernels, OpenCLKernelBase, Outputs, output_array
from optdb.opencl.ops.counterpart import Counterpart
from optdb.opencl.ops.shell import once_per_node
from optdb.runtime.arrays import Array, empty
from optdb.runtime.sizes import as_float, as_int

_MOMENTS = (
    Pass(("s0",), "s0 += LOAD(x);", "const T mean = s0 / count;"),
    Pass(("s1",), "const T d = LOAD(x) - mean;\ns1 += d * d;"),
)
_GRADIENT_SUMS = (
    Pass(("s0", "s1", "s2"), "const T d = LOAD(x) - c, by = LOAD(dy);\ns0 += by;\ns1 += by * d;\ns2 += d;"),
)

_NUMBERS = functions("batch_norm/numbers.cl")
#: What running averages add to the kernel that computes the numbers of each channel.
_RUNNING = {
    "OLD_RUNNING": ", ARRAY T *old_mean, ARRAY T *old_var",
    "NEW_RUNNING": ", ARRAY T *new_mean, ARRAY T *new_var",
    "UPDATE_RUNNING": """
        new_mean[k] = STORE(LOAD(old_mean[k]) * (1 - factor) + mean * factor);
        new_var[k] = STORE(LOAD(old_var[k]) * (1 - factor) + size / (size - 1) * var * factor);
""",
}


class _OfChannels(Counterpart, OpenCLKernelBase):
    """The base of the ops of this module."""

    common_dtype = "upcast"

    def make_node(self, *inputs: Any) -> Apply:
        """Return the node for arrays of floats, which get one dtype, and numbers of the host."""
        node = super().make_node(*inputs)
        x = node.inputs[0].type
        if not x.dtype.startswith("float"):
            raise TypeError(f"{self} normalizes floats, not arrays of {x.dtype}")
        if min(self.axes) < 0 or max(self.axes) >= x.ndim:
            raise ValueError(f"axes should be less than ndim (<{x.ndim}), but {self.axes} given")
        return node

    def gpu_kernels(self, node: Apply, name: str) -> list[Kernel]:
        *folds, numbers, elements = self._steps(node)
        serial = self.get_context(node).profile.runs_items_serially
        folding = [kernel for fold in folds for kernel in fold.kernels(serial)]
        return [*folding, numbers, *elements.kernels(), *copying(node.inputs[0].type).kernels()]

    def _steps(self, node: Apply) -> tuple[Any, ...]:
        """Return the op's steps: a `ChannelFold`, if any, the kernel that computes numbers, and a `ChannelMap`."""
        raise NotImplementedError

    def _numbers(self, node: Apply, code: str) -> Kernel:
        """Return the kernel that computes the numbers of each channel, for the dtype of a node."""
        return Kernel(ROUND_EACH_STEP + typed(code, node.inputs[0].type.dtype))

    def _compute(
        self, node: Apply, kernels: Kernels, context: Context, channels: Channels, args: Sequence[Any], *arrays: Array
    ) -> None:
        """Compute the numbers of each channel from `args`, and the last array from them and the other arrays."""
        *_, numbers, elements = self._steps(node)
        n, *inputs, out = channels.number, *arrays
        channel_numbers = [empty(context, (n,), work_dtype(out.dtype)) for _ in elements.numbers]
        launch_numbers(kernels[numbers.name], context, n, *args, *channel_numbers)
        elements.launch(kernels, context, channels, [*inputs, *channel_numbers, out])

    def _of_channel(self, x: Array, shape: Sequence[int], node: Apply, kernels: Kernels, context: Context) -> Array:
        """Return the numbers of the channels in C order, one for each."""
        channel_shape = self._channel_shape(shape)
        if any(length not in (1, n) for length, n in zip(x.shape, channel_shape)):
            raise ValueError(f"{self} was given arrays of shapes {tuple(shape)} and {tuple(x.shape)}")
        return contiguous(x, node.inputs[0].type, kernels, context, shape=channel_shape)

    def _channel_shape(self, shape: Sequence[int]) -> tuple[int, ...]:
        return tuple(1 if axis in self.axes else as_int(length) for axis, length in enumerate(shape))

    def _check_all_there(self, arrays: Sequence[Array], shape: Sequence[int]) -> None:
        """Check that each array has a number for each channel."""
        for x in arrays:
            check_shapes(self, self._channel_shape(shape), x.shape)

    def _channels(self, node: Apply) -> tuple[str, Runs]:
        x = node.inputs[0].type
        return x.dtype, Runs.of(x.ndim, self.axes)


class OpenCLBatchNormTrain(_OfChannels, host.AbstractBatchNormTrain):
    """Arrays of which each channel has mean 0 and variance 1, before it is scaled and shifted."""

    device_inputs = (0, 1, 2, 5, 6)

    @once_per_node
    def _steps(self, node: Apply) -> tuple[ChannelFold, Kernel, ChannelMap]:
        dtype, runs = self._channels(node)
        running = _RUNNING if len(node.inputs) > 5 else dict.fromkeys(_RUNNING, "")
        numbers = self._numbers(node, filled(_NUMBERS["train_numbers"], **running))
        normalize = ChannelMap(dtype, runs, ("x",), ("center", "slope", "offset"), "(x - center) * slope + offset")
        return ChannelFold(dtype, runs, ("x",), _MOMENTS, ("mean", "s1")), numbers, normalize

    def run(self, node: Apply, inputs: Sequence[Any], outputs: Outputs, kernels: Kernels, context: Context) -> None:
        x, scale, bias, epsilon, factor, *running = inputs
        self._check_all_there([scale, bias, *running], x.shape)
        shapes = [x.shape, *[self._channel_shape(x.shape)] * (len(outputs) - 1)]
        out, *of_channels = [output_array(cell, context, shape, x.dtype) for cell, shape in zip(outputs, shapes)]
        channels = Channels.of(x.shape, self.axes)
        if not channels.number:
            return
        x = contiguous(x, node.inputs[0].type, kernels, context)
        parameters = [self._of_channel(y, x.shape, node, kernels, context) for y in (scale, bias, *running)]
        parts, part = channels.parts(context, x.dtype.itemsize)
        sums = [empty(context, (parts, channels.number), "float64") for _ in range(2)]
        if parts:
            self._steps(node)[0].launch(kernels, context, channels, parts, part, [x, *sums])
        sizes = [channels.size, parts, part, as_float(epsilon), as_float(factor)]
        self._compute(node, kernels, context, channels, [*sizes, *sums, *parameters, *of_channels], x, out)


class OpenCLBatchNormTrainGrad(_OfChannels, host.AbstractBatchNormTrainGrad):
    """The gradient of batch normalization for training, from the means and deviations that training computes."""

    device_inputs = slice(0, 5)

    @once_per_node
    def _steps(self, node: Apply) -> tuple[ChannelFold, Kernel, ChannelMap]:
        dtype, runs = self._channels(node)
        fold = ChannelFold(dtype, runs, ("x", "dy"), _GRADIENT_SUMS, ("s0", "s1", "s2"), center=True)
        number_names = ("center", "inverse", "slope", "offset", "factor")
        expression = "factor * ((dy * inverse - (x - center) * slope) - offset)"
        numbers = self._numbers(node, _NUMBERS["gradient_numbers"])
        return fold, numbers, ChannelMap(dtype, runs, ("x", "dy"), number_names, expression)

    def run(self, node: Apply, inputs: Sequence[Any], outputs: Outputs, kernels: Kernels, context: Context) -> None:
        x, dy, *of_channel, _ = inputs
        check_shapes(self, x.shape, dy.shape)
        self._check_all_there(of_channel, x.shape)
        shapes = [x.shape, *[self._channel_shape(x.shape)] * 2]
        gx, *sums_out = [output_array(cell, context, shape, x.dtype) for cell, shape in zip(outputs, shapes)]
        channels = Channels.of(x.shape, self.axes)
        if not channels.number:
            return
        x, dy = (contiguous(y, node.inputs[0].type, kernels, context) for y in (x, dy))
        scale, mean, invstd = (self._of_channel(y, x.shape, node, kernels, context) for y in of_channel)
        parts, part = channels.parts(context, 2 * x.dtype.itemsize)
        sums = [empty(context, (parts, channels.number), "float64") for _ in range(3)]
        if parts:
            self._steps(node)[0].launch(kernels, context, channels, parts, part, [x, dy, mean, *sums])
        args = [channels.size, parts, *sums, scale, mean, invstd, *sums_out]
        self._compute(node, kernels, context, channels, args, x, dy, gx)


class OpenCLBatchNormInference(_OfChannels, host.AbstractBatchNormInference):
    """Arrays normalized by given means and variances."""

    device_inputs = slice(0, 5)

    @once_per_node
    def _steps(self, node: Apply) -> tuple[Kernel, ChannelMap]:
        dtype, runs = self._channels(node)
        names, expression = ("center", "slope", "offset"), "(x - center) * slope + offset"
        return self._numbers(node, _NUMBERS["inference_numbers"]), ChannelMap(dtype, runs, ("x",), names, expression)

    def run(self, node: Apply, inputs: Sequence[Any], outputs: Outputs, kernels: Kernels, context: Context) -> None:
        x, *of_channel, epsilon = inputs
        out = output_array(outputs[0], context, x.shape, x.dtype)
        parameters = [self._of_channel(y, x.shape, node, kernels, context) for y in of_channel]
        if not out.size:
            return
        channels = Channels.of(x.shape, self.axes)
        x = contiguous(x, node.inputs[0].type, kernels, context)
        self._compute(node, kernels, context, channels, [as_float(epsilon), *parameters], x, out)
