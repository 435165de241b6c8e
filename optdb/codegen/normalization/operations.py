"""Batch normalization for training, its gradient, and normalization with given means and variances.

Per-channel numbers are arrays of length 1 along the normalized axes. A first kernel reduces each channel or parts of
it. A second kernel merges the parts and computes each channel's numbers, and a third kernel computes the elements.
Parts are merged as in Chan, Golub and LeVeque, "Updating formulae and a pairwise algorithm for computing sample
variances" (1979). CPUs accumulate in float64; other devices use compensated sums.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from optdb.codegen.elements import ElementKernels, contiguous, copying
from optdb.codegen.elementwise import ElementCode, Operand
from optdb.codegen.kernels import Kernel
from optdb.codegen.layout import check_shapes, launch_striding
from optdb.codegen.normalization.channel_reductions import (
    GRADIENT_SUMS,
    MOMENTS,
    ChannelFold,
    CompensatedFold,
    Statistic,
    launch_merging,
    merging_kernel,
)
from optdb.codegen.normalization.channels import Channels, Runs
from optdb.codegen.operation import ArraySpec, Kernels, Operation, Outputs, output_array
from optdb.codegen.source import ROUND_EACH_STEP, functions, typed, work_dtype
from optdb.runtime.arrays import Array, empty
from optdb.runtime.sizes import as_float, as_int

#: Code with which the kernel for per-channel numbers updates the running averages.
_RUNNING = {
    "OLD_RUNNING": ", ARRAY T *old_mean, ARRAY T *old_var",
    "NEW_RUNNING": ", ARRAY T *new_mean, ARRAY T *new_var",
    "UPDATE_RUNNING": """
        new_mean[k] = STORE(LOAD(old_mean[k]) * (1 - factor) + mean * factor);
        new_var[k] = STORE(LOAD(old_var[k]) * (1 - factor) + size / (size - 1) * var * factor);
""",
}
_NORMALIZED = ("center", "slope", "offset"), "(x - center) * slope + offset"


@dataclass(eq=False)
class _OfChannels(Operation):
    """Base class: `_fold` reduces channels, `_numbers` computes per-channel numbers, and `_map` computes elements."""

    x: ArraySpec
    axes: Sequence[int]

    def __post_init__(self) -> None:
        self._runs = Runs.of(self.x.ndim, self.axes)
        self._fold: ChannelFold | CompensatedFold | None = None
        self._map: ElementKernels | None = None
        self._map_numbers = 0

    def kernels(self) -> list[Kernel]:
        folding = [] if self._fold is None else self._fold.kernels()
        mapping = [] if self._map is None else self._map.kernels()
        return [*folding, self._numbers, *mapping, *copying(self.x).kernels()]

    def _fold_and_merge(self, name: str, statistic: Statistic, **words: str) -> None:
        """Choose kernels for per-channel numbers, which compute either in float64 or with compensated sums."""
        dtype, in_float64 = self.x.dtype, self.context.profile.accumulates_in_float64
        self._fold = (ChannelFold if in_float64 else CompensatedFold)(dtype, self._runs, statistic)
        self._numbers = merging_kernel(name, dtype, statistic, in_float64, **words)

    def _folded(
        self, kernels: Kernels, channels: Channels, inputs: Sequence[Array], *center: Array
    ) -> tuple[int, int, list[Array]]:
        """Return the number of parts per channel, the size of a part, and the partial sums."""
        parts, part = channels.parts(self.context, sum(x.dtype.itemsize for x in inputs))
        fold = self._fold
        assert fold is not None  # every operation that reduces channels sets it in `__post_init__`
        sums: list[Array] = [empty(self.context, (parts, channels.number), dtype) for dtype in fold.sum_dtypes]
        if parts:
            in_order = [contiguous(x, self.x, kernels, self.context) for x in inputs]
            fold.launch(kernels, self.context, channels, parts, part, [*in_order, *center, *sums])
        return parts, part, sums

    def _launch_numbers(self, kernels: Kernels, channels: Channels, *args: Any) -> None:
        launch = launch_striding if self._fold is None else launch_merging
        launch(kernels[self._numbers.name], self.context, channels.number, *args)

    def _map_elements(self, arrays: Sequence[str], numbers: Sequence[str], expression: str) -> None:
        """Choose the kernels that compute the result's elements from array elements and per-channel numbers."""
        dtype = self.x.dtype
        inputs = [Operand.of(x, dtype) for x in arrays] + [Operand.of(x, work_dtype(dtype)) for x in numbers]
        outputs, kind = (Operand.of("z", dtype),), self.context.profile.device_kind
        code = ElementCode(tuple(inputs), outputs, f"z = {expression};", self.x.ndim, "normalize", device_kind=kind)
        self._map, self._map_numbers = ElementKernels(code), len(numbers)

    def _compute(self, kernels: Kernels, channels: Channels, args: Sequence[Any], *arrays: Array) -> None:
        """Compute the per-channel numbers from `args`, then the last array from these numbers and the other arrays."""
        *inputs, out = arrays
        assert self._map is not None  # every operation that normalizes arrays sets it in `__post_init__`
        shape, dtype = self._channel_shape(out.shape), work_dtype(out.dtype)
        numbers: list[Array] = [empty(self.context, shape, dtype) for _ in range(self._map_numbers)]
        self._launch_numbers(kernels, channels, *args, *numbers)
        self._map.launch(kernels, self.context, out.shape, [*inputs, *numbers, out])

    def _of_channel(self, x: Array, shape: Sequence[int], kernels: Kernels) -> Array:
        channel_shape = self._channel_shape(shape)
        if any(length not in (1, n) for length, n in zip(x.shape, channel_shape)):
            raise ValueError(f"{self} got arrays of shapes {tuple(shape)} and {tuple(x.shape)}")
        return contiguous(x, self.x, kernels, self.context, shape=channel_shape)

    def _channel_shape(self, shape: Sequence[int]) -> tuple[int, ...]:
        return tuple(1 if axis in self.axes else as_int(length) for axis, length in enumerate(shape))

    def _check_channel_counts(self, arrays: Sequence[Array], shape: Sequence[int]) -> None:
        for x in arrays:
            check_shapes(self, self._channel_shape(shape), x.shape)


@dataclass(eq=False)
class BatchNormTraining(_OfChannels):
    """An array normalized to mean 0 and variance 1 in each channel, then scaled and shifted.

    The inputs are the array, the per-channel scale and bias, and two host scalars: epsilon, and the weight of the new
    values in the running averages. With `running`, the running averages of means and variances are two more inputs. The
    outputs are the normalized array, the means, the inverse standard deviations, and the new averages.
    """

    running: bool

    def __post_init__(self) -> None:
        super().__post_init__()
        words = _RUNNING if self.running else dict.fromkeys(_RUNNING, "")
        self._fold_and_merge("train_numbers", MOMENTS, **words)
        self._map_elements(("x",), *_NORMALIZED)

    def run(self, inputs: Sequence[Any], outputs: Outputs, kernels: Kernels) -> None:
        x, scale, bias, epsilon, factor, *running = inputs
        self._check_channel_counts([scale, bias, *running], x.shape)
        shapes = [x.shape, *[self._channel_shape(x.shape)] * (len(outputs) - 1)]
        out, *of_channels = [output_array(cell, self.context, shape, x.dtype) for cell, shape in zip(outputs, shapes)]
        channels = Channels.of(x.shape, self.axes)
        if not channels.number:
            return
        parameters = [self._of_channel(y, x.shape, kernels) for y in (scale, bias, *running)]
        parts, part, sums = self._folded(kernels, channels, [x])
        sizes = [channels.size, parts, part, as_float(epsilon), as_float(factor)]
        self._compute(kernels, channels, [*sizes, *sums, *parameters, *of_channels], x, out)


@dataclass(eq=False)
class BatchNormGradient(_OfChannels):
    """The gradient of batch normalization for training.

    The inputs are the array, the gradient with respect to the result, the per-channel scale, the means, the inverse
    standard deviations, and epsilon. The outputs are the gradients with respect to the array, the scale and the bias.
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        names = ("center", "inverse", "slope", "offset", "factor")
        expression = "factor * ((dy * inverse - (x - center) * slope) - offset)"
        self._fold_and_merge("gradient_numbers", GRADIENT_SUMS)
        self._map_elements(("x", "dy"), names, expression)

    def run(self, inputs: Sequence[Any], outputs: Outputs, kernels: Kernels) -> None:
        x, dy, *of_channel, _ = inputs
        check_shapes(self, x.shape, dy.shape)
        self._check_channel_counts(of_channel, x.shape)
        shapes = [x.shape, *[self._channel_shape(x.shape)] * 2]
        gx, *sums_out = [output_array(cell, self.context, shape, x.dtype) for cell, shape in zip(outputs, shapes)]
        channels = Channels.of(x.shape, self.axes)
        if not channels.number:
            return
        scale, mean, invstd = (self._of_channel(y, x.shape, kernels) for y in of_channel)
        parts, _, sums = self._folded(kernels, channels, [x, dy], mean)
        args = [channels.size, parts, *sums, scale, mean, invstd, *sums_out]
        self._compute(kernels, channels, args, x, dy, gx)


@dataclass(eq=False)
class BatchNormMoments(_OfChannels):
    """The moments of each channel of an array, as a vector: means, their rounding errors, and squared deviations."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._fold_and_merge("moments_numbers", MOMENTS)

    def run(self, inputs: Sequence[Any], outputs: Outputs, kernels: Kernels) -> None:
        (x,) = inputs
        channels = Channels.of(x.shape, self.axes)
        out = output_array(outputs[0], self.context, (3 * channels.number,), work_dtype(x.dtype))
        if not channels.number:
            return
        parts, part, sums = self._folded(kernels, channels, [x])
        self._launch_numbers(kernels, channels, channels.size, parts, part, *sums, out)


@dataclass(eq=False)
class BatchNormGradientSums(_OfChannels):
    """The gradients with respect to scale and bias, and sums of deviations from the means, as a vector.

    The inputs are the array, the gradient with respect to the result, the means and the inverse standard deviations.
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        self._fold_and_merge("sums_numbers", GRADIENT_SUMS)

    def run(self, inputs: Sequence[Any], outputs: Outputs, kernels: Kernels) -> None:
        x, dy, *of_channel = inputs
        check_shapes(self, x.shape, dy.shape)
        self._check_channel_counts(of_channel, x.shape)
        channels = Channels.of(x.shape, self.axes)
        out = output_array(outputs[0], self.context, (3 * channels.number,), work_dtype(x.dtype))
        if not channels.number:
            return
        mean, invstd = (self._of_channel(y, x.shape, kernels) for y in of_channel)
        parts, _, sums = self._folded(kernels, channels, [x, dy], mean)
        self._launch_numbers(kernels, channels, channels.size, parts, *sums, invstd, out)


@dataclass(eq=False)
class BatchNormInference(_OfChannels):
    """An array normalized with given means and variances.

    The inputs are the array, the per-channel scale and bias, the means and variances, and epsilon.
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        code = functions("normalization/numbers.cl")["inference_numbers"]
        self._numbers = Kernel(ROUND_EACH_STEP + typed(code, self.x.dtype))
        self._map_elements(("x",), *_NORMALIZED)

    def run(self, inputs: Sequence[Any], outputs: Outputs, kernels: Kernels) -> None:
        x, *of_channel, epsilon = inputs
        out = output_array(outputs[0], self.context, x.shape, x.dtype)
        parameters = [self._of_channel(y, x.shape, kernels) for y in of_channel]
        if not out.size:
            return
        channels = Channels.of(x.shape, self.axes)
        self._compute(kernels, channels, [as_float(epsilon), *parameters], x, out)
