"""Batch normalization: for training, with its gradient, and for use.

Each channel has numbers of its own, which have length 1 along the axes that are normalized over.
Training takes three kernels: one goes over the elements of each channel (or a part of them, while
that is in the cache) for the mean and then for the deviations from it; one merges the parts
and works out what every element is to be multiplied with; one normalizes. Parts are merged as in
Chan, Golub and LeVeque, Updating formulae and a pairwise algorithm for computing sample variances
(1979). The gradient takes three likewise, and use two.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from optdb.codegen.batch_norm.channel_maps import ChannelMap, ChannelNumbers
from optdb.codegen.batch_norm.channel_reductions import ChannelFold, Pass
from optdb.codegen.batch_norm.channels import Channels, Runs
from optdb.codegen.fp16 import load_w, work_dtype, write_w
from optdb.codegen.layout import check_shapes
from optdb.host import layers as host
from optdb.host import scalars
from optdb.host.graph import Apply, Variable
from optdb.opencl.contexts import infer_context_name
from optdb.opencl.kernels import Context, Kernel, Kernels, OpenCLKernelBase, Outputs, output_array
from optdb.opencl.ops.counterpart import Counterpart
from optdb.opencl.ops.elements import once_per_node
from optdb.opencl.ops.elemwise import cast
from optdb.opencl.ops.views import contiguous, copying
from optdb.opencl.transfers import as_opencl_variable
from optdb.runtime.arrays import Array, empty
from optdb.runtime.sizes import as_float, as_int

_MOMENTS = (
    Pass(("s0",), "s0 += LOAD(x);", "const T mean = s0 / count;"),
    Pass(("s1",), "const T d = LOAD(x) - mean;\ns1 += d * d;"),
)
_GRADIENT_SUMS = (
    Pass(("s0", "s1", "s2"), "const T d = LOAD(x) - c, by = LOAD(dy);\ns0 += by;\ns1 += by * d;\ns2 += d;"),
)

_MERGE = """
double seen = 0, mean = 0, squares = 0;
for (ga_size i = 0; i < parts; ++i) {{
    const double more = min(part, m - i * part), all = seen + more;
    const double off = means[i * n + k] - mean;
    mean += off * (more / all);
    squares += deviations[i * n + k] + off * off * (seen * more / all);
    seen = all;
}}
if (seen == 0)
    mean = NAN;
const double var = squares / seen;
const double inverse = 1 / sqrt(var + epsilon);
batch_mean[k] = {write}(mean);
invstd[k] = {write}(inverse);
center[k] = mean;
slope[k] = {load}(scale[k]) * inverse;
offset[k] = {load}(bias[k]);
"""
_RUNNING = """
const double size = m;
new_mean[k] = {write}({load}(old_mean[k]) * (1 - factor) + mean * factor);
new_var[k] = {write}({load}(old_var[k]) * (1 - factor) + size / (size - 1) * var * factor);
"""
_MERGE_GRADIENT = """
double sum_dy = 0, product = 0, sum_d = 0;
for (ga_size i = 0; i < parts; ++i) {{
    sum_dy += sums_dy[i * n + k];
    product += products[i * n + k];
    sum_d += sums_d[i * n + k];
}}
const double size = m, inv = {load}(invstd[k]);
const double by = product / size * inv * inv * inv;
g_scale[k] = {write}(product * inv);
g_bias[k] = {write}(sum_dy);
center[k] = {load}(mean[k]);
inverse[k] = inv;
slope[k] = by;
offset[k] = (sum_dy * inv - sum_d * by) / size;
factor[k] = {load}(scale[k]);
"""
_USE = """
center[k] = {load}(mean[k]);
slope[k] = {load}(scale[k]) / sqrt({load}(var[k]) + epsilon);
offset[k] = {load}(bias[k]);
"""


class _OfChannels(Counterpart, OpenCLKernelBase):
    """What the ops of this module share."""

    def _node(self, arrays: Sequence[Any], numbers: Sequence[Any], more: Sequence[Any] = ()) -> Apply:
        """Return the node for arrays, which get one dtype; `more` of them come behind the numbers."""
        context_name = infer_context_name(*[x for x in (*arrays, *more) if isinstance(x, Variable)])
        moved = [as_opencl_variable(x, context_name) for x in (*arrays, *more)]
        dtype, ndim = scalars.upcast(*[x.type.dtype for x in moved]), moved[0].type.ndim
        if not dtype.startswith("float"):
            raise TypeError(f"{self} normalizes floats, not arrays of {dtype}")
        if min(self.axes) < 0 or max(self.axes) >= ndim:
            raise ValueError(f"axes should be less than ndim (<{ndim}), but {self.axes} given")
        alike = [cast(x, dtype) for x in moved]
        return Counterpart.make_node(self, *alike[: len(arrays)], *numbers, *alike[len(arrays) :])

    def _of_channel(self, x: Array, shape: Sequence[int], node: Apply, kernels: Kernels, context: Context) -> Array:
        """Return the numbers of the channels in C order, one for each."""
        wanted = self._channel_shape(shape)
        if any(length not in (1, n) for length, n in zip(x.shape, wanted)):
            raise ValueError(f"{self} was given arrays of shapes {tuple(shape)} and {tuple(x.shape)}")
        if tuple(x.shape) == wanted:
            return contiguous(x, node.inputs[0].type, kernels, context)
        full = empty(context, wanted, x.dtype)
        copying(node.inputs[0].type).launch(kernels, context, wanted, [x, full])
        return full

    def _channel_shape(self, shape: Sequence[int]) -> tuple[int, ...]:
        return tuple(1 if axis in self.axes else as_int(length) for axis, length in enumerate(shape))

    def _check_all_there(self, arrays: Sequence[Array], shape: Sequence[int]) -> None:
        """Do nothing if each channel has numbers of its own."""
        for x in arrays:
            check_shapes(self, self._channel_shape(shape), x.shape)

    def _channels(self, node: Apply) -> tuple[str, Runs]:
        x = node.inputs[0].type
        return x.dtype, Runs.of(x.ndim, self.axes)


def _dtypes(names: str, dtype: str) -> tuple[tuple[str, str], ...]:
    return tuple((name, dtype) for name in names.split())


def _words(dtype: str) -> dict[str, str]:
    return {"load": load_w(dtype), "write": write_w(dtype)}


class OpenCLBatchNormTrain(_OfChannels, host.AbstractBatchNormTrain):
    """Arrays of which each channel has mean 0 and variance 1, before it is scaled and shifted."""

    @classmethod
    def device_places(cls, number: int) -> Sequence[int]:
        return [0, 1, 2, *range(5, number)]

    def make_node(
        self,
        x: Any,
        scale: Any,
        bias: Any,
        epsilon: Any = 1e-4,
        running_average_factor: Any = 0.1,
        running_mean: Any = None,
        running_var: Any = None,
    ) -> Apply:
        """Return the node for arrays, and two numbers of the host."""
        running = [average for average in (running_mean, running_var) if average is not None]
        return self._node([x, scale, bias], [epsilon, running_average_factor], running)

    def gpu_kernels(self, node: Apply, name: str) -> list[Kernel]:
        fold, numbers, normalize = self._steps(node)
        serial = self.get_context(node).profile.runs_items_serially
        return [*fold.kernels(serial), numbers.kernel(), *normalize.kernels(), *copying(node.inputs[0].type).kernels()]

    @once_per_node
    def _steps(self, node: Apply) -> tuple[ChannelFold, ChannelNumbers, ChannelMap]:
        dtype, runs = self._channels(node)
        running = len(node.inputs) > 5
        numbers = ChannelNumbers(
            scalars=_dtypes("epsilon factor", "float64"),
            arrays=(
                *_dtypes("means deviations", "float64"),
                *_dtypes("scale bias" + " old_mean old_var" * running, dtype),
                *_dtypes("batch_mean invstd" + " new_mean new_var" * running, dtype),
                *_dtypes("center slope offset", work_dtype(dtype)),
            ),
            statements=(_MERGE + _RUNNING * running).format(**_words(dtype)),
            sizes=("m", "parts", "part"),
        )
        normalize = ChannelMap(dtype, runs, ("x",), ("center", "slope", "offset"), "(x - center) * slope + offset")
        return ChannelFold(dtype, runs, ("x",), _MOMENTS, ("mean", "s1")), numbers, normalize

    def run(self, node: Apply, inputs: Sequence[Any], outputs: Outputs, kernels: Kernels, context: Context) -> None:
        x, scale, bias, epsilon, factor, *running = inputs
        self._check_all_there([scale, bias, *running], x.shape)
        fold, numbers, normalize = self._steps(node)
        shapes = [x.shape, *[self._channel_shape(x.shape)] * (len(outputs) - 1)]
        out, *of_channels = [output_array(cell, context, shape, x.dtype) for cell, shape in zip(outputs, shapes)]
        channels = Channels.of(x.shape, self.axes)
        n = channels.number
        if not n:
            return
        x = contiguous(x, node.inputs[0].type, kernels, context)
        given = [self._of_channel(y, x.shape, node, kernels, context) for y in (scale, bias, *running)]
        parts, part = channels.parts(context, x.dtype.itemsize)
        sums = [empty(context, (parts, n), "float64") for _ in range(2)]
        if parts:
            fold.launch(kernels, context, channels, parts, part, [x, *sums])
        own = [empty(context, (n,), work_dtype(x.dtype)) for _ in range(3)]
        sizes = [channels.size, parts, part, as_float(epsilon), as_float(factor)]
        numbers.launch(kernels, context, n, *sizes, *sums, *given, *of_channels, *own)
        normalize.launch(kernels, context, channels, [x, *own, out])


class OpenCLBatchNormTrainGrad(_OfChannels, host.AbstractBatchNormTrainGrad):
    """The gradient of batch normalization for training, from the means and deviations that it found."""

    device_inputs = slice(0, 5)

    def make_node(self, x: Any, dy: Any, scale: Any, x_mean: Any, x_invstd: Any, epsilon: Any = 1e-4) -> Apply:
        """Return the node for arrays, and a number of the host."""
        return self._node([x, dy, scale, x_mean, x_invstd], [epsilon])

    def gpu_kernels(self, node: Apply, name: str) -> list[Kernel]:
        fold, numbers, gradient = self._steps(node)
        serial = self.get_context(node).profile.runs_items_serially
        return [*fold.kernels(serial), numbers.kernel(), *gradient.kernels(), *copying(node.inputs[0].type).kernels()]

    @once_per_node
    def _steps(self, node: Apply) -> tuple[ChannelFold, ChannelNumbers, ChannelMap]:
        dtype, runs = self._channels(node)
        fold = ChannelFold(dtype, runs, ("x", "dy"), _GRADIENT_SUMS, ("s0", "s1", "s2"), center=True)
        own = "center inverse slope offset factor"
        numbers = ChannelNumbers(
            scalars=(),
            arrays=(
                *_dtypes("sums_dy products sums_d", "float64"),
                *_dtypes("scale mean invstd g_scale g_bias", dtype),
                *_dtypes(own, work_dtype(dtype)),
            ),
            statements=_MERGE_GRADIENT.format(**_words(dtype)),
            sizes=("m", "parts"),
        )
        expression = "factor * ((dy * inverse - (x - center) * slope) - offset)"
        return fold, numbers, ChannelMap(dtype, runs, ("x", "dy"), tuple(own.split()), expression)

    def run(self, node: Apply, inputs: Sequence[Any], outputs: Outputs, kernels: Kernels, context: Context) -> None:
        x, dy, *of_channel, _ = inputs
        check_shapes(self, x.shape, dy.shape)
        self._check_all_there(of_channel, x.shape)
        fold, numbers, gradient = self._steps(node)
        shapes = [x.shape, *[self._channel_shape(x.shape)] * 2]
        gx, *sums_out = [output_array(cell, context, shape, x.dtype) for cell, shape in zip(outputs, shapes)]
        channels = Channels.of(x.shape, self.axes)
        n = channels.number
        if not n:
            return
        x, dy = (contiguous(y, node.inputs[0].type, kernels, context) for y in (x, dy))
        scale, mean, invstd = (self._of_channel(y, x.shape, node, kernels, context) for y in of_channel)
        parts, part = channels.parts(context, 2 * x.dtype.itemsize)
        sums = [empty(context, (parts, n), "float64") for _ in range(3)]
        if parts:
            fold.launch(kernels, context, channels, parts, part, [x, dy, mean, *sums])
        own = [empty(context, (n,), work_dtype(x.dtype)) for _ in range(5)]
        numbers.launch(*(kernels, context, n, channels.size, parts), *sums, *(scale, mean, invstd), *sums_out, *own)
        gradient.launch(kernels, context, channels, [x, dy, *own, gx])


class OpenCLBatchNormInference(_OfChannels, host.AbstractBatchNormInference):
    """Arrays normalized by means and variances that are known."""

    device_inputs = slice(0, 5)

    def make_node(self, x: Any, scale: Any, bias: Any, mean: Any, var: Any, epsilon: Any = 1e-4) -> Apply:
        """Return the node for arrays, and a number of the host."""
        return self._node([x, scale, bias, mean, var], [epsilon])

    def gpu_kernels(self, node: Apply, name: str) -> list[Kernel]:
        numbers, normalize = self._steps(node)
        return [numbers.kernel(), *normalize.kernels(), *copying(node.inputs[0].type).kernels()]

    @once_per_node
    def _steps(self, node: Apply) -> tuple[ChannelNumbers, ChannelMap]:
        dtype, runs = self._channels(node)
        computed, own = work_dtype(dtype), "center slope offset"
        numbers = ChannelNumbers(
            scalars=(("epsilon", computed),),
            arrays=(*_dtypes("scale bias mean var", dtype), *_dtypes(own, computed)),
            statements=_USE.format(**_words(dtype)),
        )
        return numbers, ChannelMap(dtype, runs, ("x",), tuple(own.split()), "(x - center) * slope + offset")

    def run(self, node: Apply, inputs: Sequence[Any], outputs: Outputs, kernels: Kernels, context: Context) -> None:
        x, *of_channel, epsilon = inputs
        numbers, normalize = self._steps(node)
        out = output_array(outputs[0], context, x.shape, x.dtype)
        given = [self._of_channel(y, x.shape, node, kernels, context) for y in of_channel]
        if not out.size:
            return
        channels = Channels.of(x.shape, self.axes)
        x = contiguous(x, node.inputs[0].type, kernels, context)
        own = [empty(context, (channels.number,), work_dtype(x.dtype)) for _ in range(3)]
        numbers.launch(kernels, context, channels.number, as_float(epsilon), *given, *own)
        normalize.launch(kernels, context, channels, [x, *own, out])
