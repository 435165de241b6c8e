"""Convolutions in two and three dimensions, and their gradients, as operations.

Images have the shape (images, channels, *lengths), and filters have the shape (filters, channels per group, *lengths).
Unshared filters differ for each output; their shape is (filters, *outputs, channels per group, *lengths). For unshared
filters, each work item computes elements of the result one by one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from optdb.codegen.convolve import plan
from optdb.codegen.convolve.geometry import Axis, BorderMode, axes_of
from optdb.codegen.convolve.packing import ConvolutionCall, FilterGroups, Images, convolution_kernels, tables_of
from optdb.codegen.convolve.products import correlate, correlate_kernels, lanes, weights, weights_kernels
from optdb.codegen.elements import contiguous, copying
from optdb.codegen.gemm.problem import Precision
from optdb.codegen.kernels import Kernel
from optdb.codegen.layout import is_contiguous, launch_chunks, size_of
from optdb.codegen.operation import ArraySpec, Kernels, Operation, Outputs, output_array, output_zeros
from optdb.codegen.scratch import scratch
from optdb.codegen.source import filled, functions, work_dtype
from optdb.codegen.views import subtensor
from optdb.runtime.arrays import Array
from optdb.runtime.context import Context

#: The arguments that the kernel `unshared_inputs` takes for each axis.
_NUMBERS = ("length", "taps", "low", "step", "dilation", "out")


@dataclass(frozen=True)
class ConvolutionSettings:
    """The parameters of a convolution."""

    #: Number of axes: 2 or 3.
    dims: int
    #: The padding: 'valid', 'full', 'half', one number, or one number or pair of numbers for each axis.
    border_mode: BorderMode
    #: Stride and dilation of each axis.
    steps: Sequence[int]
    dilations: Sequence[int]
    #: Number of groups into which channels and filters are divided.
    groups: int = 1
    #: Whether filters are reversed.
    flip: bool = True
    #: Whether each output has its own filters.
    unshared: bool = False


@dataclass(eq=False)
class ConvolutionOperation(Operation):
    """Base class of the convolution operations; the two arrays of an operation have the same floating-point dtype."""

    #: Name of the kernel for unshared filters.
    unshared_kernel: ClassVar[str]

    #: Specs of the arrays.
    first: ArraySpec
    second: ArraySpec
    settings: ConvolutionSettings
    #: Precision of products with shared filters.
    precision: Precision = "highest"

    @staticmethod
    def shared_kernels(dtype: str, context: Context, precision: Precision) -> list[Kernel]:
        """Return the kernels for shared filters."""
        raise NotImplementedError

    @property
    def contiguous_inputs(self) -> tuple[int, ...]:
        """Indices of the arrays that are copied if they are not contiguous."""
        return (1,)

    def kernels(self) -> list[Kernel]:
        dtype, context = self.first.dtype, self.context
        if self.settings.unshared:
            name, code = self.unshared_kernel, functions("convolve/unshared.cl")
            packing = [] if name in code else ["pack_images"]
            other = filled(code["UNSHARED"], UNSHARED=name, FORWARD=int(name == "unshared_forward"))
            kernels = convolution_kernels(dtype, context, code.get(name, other), packing)
        else:
            kernels = self.shared_kernels(dtype, context, self.precision)
        for i in self.contiguous_inputs:
            kernels += copying((self.first, self.second)[i], f"copy{i}").kernels()
        return kernels

    def _contiguous(self, i: int, x: Array, kernels: Kernels) -> Array:
        return contiguous(x, (self.first, self.second)[i], kernels, self.context, f"copy{i}")

    def _filters(self, i: int, x: Array, kernels: Kernels) -> tuple[Array, bool]:
        """Return contiguous filters, and whether to reverse them; filters stored in reverse order need no copy."""
        taps = self.settings.dims
        backwards = subtensor(x, [slice(None)] * (x.ndim - taps) + [slice(None, None, -1)] * taps)
        if not is_contiguous(x) and is_contiguous(backwards):
            return backwards, not self.settings.flip
        return self._contiguous(i, x, kernels), self.settings.flip

    def _check(self, image: Sequence[int], kernel: Sequence[int], top: Sequence[int] | None = None) -> tuple[Axis, ...]:
        """Return the axes for the shapes of images, filters and optionally results; raise ValueError for a mismatch."""
        # In a trace, the number of images may be symbolic; the other lengths must be known, because tables and kernels
        # depend on them.
        image, kernel = (image[0], *map(int, image[1:])), tuple(map(int, kernel))
        dims, groups = self.settings.dims, self.settings.groups
        axes = self._axes(image[2:], kernel[-dims:])
        out = tuple(axis.out for axis in axes)[-dims:]
        shapes = f"images of shape {image} and filters of shape {kernel}"
        if kernel[-dims - 1] * groups != image[1]:
            raise ValueError(f"{self} got {shapes} in {groups} groups: the numbers of channels do not match")
        if kernel[0] % groups:
            raise ValueError(f"{self} cannot divide {kernel[0]} filters into {groups} groups")
        if self.settings.unshared and kernel[1 : 1 + dims] != out:
            raise ValueError(f"{self} got {shapes}, but needs filters for {out} outputs")
        if top is not None and tuple(top) != (image[0], kernel[0], *out):
            raise ValueError(f"{self} got {shapes}, which do not produce a result of shape {tuple(top)}")
        return axes

    def _axes(self, image: Sequence[int], kernel: Sequence[int]) -> tuple[Axis, Axis, Axis]:
        """Return the axes for convolving an image with a filter; raise ValueError if the filter does not fit."""
        axes = axes_of(image, kernel, self.settings.border_mode, self.settings.steps, self.settings.dilations)
        if not all(axis.fits for axis in axes):
            raise ValueError(
                f"{self} cannot convolve images of {tuple(image)} with filters of {tuple(kernel)}: the result would "
                "be empty. Pad the images, or use smaller filters of at least one element"
            )
        return axes

    def _groups(self, kernel: Array) -> tuple[int, int, tuple[int, int, int]]:
        """Return a group's number of filters, its number of channels, and strides of groups, filters and channels."""
        rows, channels = kernel.shape[0] // self.settings.groups, kernel.shape[1]
        taps = kernel.size // (kernel.shape[0] * channels)
        return rows, channels, (rows * channels * taps, channels * taps, taps)

    def _unshared(
        self, kernels: Kernels, axes: Sequence[Axis], flip: bool, images: Array, other: Array, out: Array
    ) -> None:
        """Compute a result from images and filters, or the filters' gradient from images and the result's gradient."""
        planned, context, groups = plan.forward(tuple(axes), flip, 1), self.context, self.settings.groups
        channels = images.shape[1] // groups
        features = other.shape[0] if self.unshared_kernel == "unshared_forward" else other.shape[1]
        [(_, offsets, pixels, *_)] = tables_of(context, planned, channels)
        reading = Images(ConvolutionCall(kernels, context), planned, images, images.shape[0], in_place=False)
        plane = size_of([axis.out for axis in axes])
        depth = channels * size_of([axis.taps for axis in axes])
        steps = [images.shape[1] * planned.layout.channel, channels * planned.layout.channel]
        with scratch(context, work_dtype(out.dtype), reading.memory) as (y,):
            for _, _, x in reading.batches(y):
                numbers = [images.shape[0], features, plane, depth, features // groups, *steps]
                args = [*numbers, x, offsets, pixels, other, out]
                launch_chunks(kernels[self.unshared_kernel], context, features * plane, *args, least=1)

    def _refuse_empty(self, lengths: Sequence[int], counts: Sequence[int]) -> None:
        """Raise ValueError, as SciPy does on the host, for axes of length 0 in three-dimensional convolutions."""
        if self.settings.dims == 3 and 0 in lengths and 0 not in counts:
            raise ValueError(
                f"{self} does not support axes of length 0 in three dimensions: the lengths are {tuple(lengths)}"
            )


class Convolve(ConvolutionOperation):
    """The convolution of images with filters."""

    unshared_kernel = "unshared_forward"
    shared_kernels = staticmethod(correlate_kernels)

    def run(self, inputs: Sequence[Any], outputs: Outputs, kernels: Kernels) -> None:
        image, kernel = inputs
        context, how = self.context, self.settings
        axes = self._check(image.shape, kernel.shape)
        shape = (image.shape[0], kernel.shape[0], *(axis.out for axis in axes[-how.dims :]))
        self._refuse_empty(shape[2:], [*image.shape[:2], kernel.shape[0]])
        if not image.size or not kernel.size or 0 in shape:
            output_zeros(outputs[0], context, shape, image.dtype)
            return
        out = output_array(outputs[0], context, shape, image.dtype)
        kernel, flip = self._filters(1, kernel, kernels)
        if how.unshared:
            self._unshared(kernels, axes, flip, image, kernel, out)
            return
        products = plan.forward(axes, flip, lanes(image.dtype.name, context))
        rows, channels, (by_group, by_row, by_channel) = self._groups(kernel)
        filters = FilterGroups(kernel, how.groups, rows, channels, (by_group, by_row, by_channel))
        correlate(ConvolutionCall(kernels, context, self.precision), products, image, filters, out)


class FilterGradient(ConvolutionOperation):
    """The gradient of a convolution with respect to the filters, given images and the gradient of the result.

    The third input is a host vector with the lengths of the filters.
    """

    unshared_kernel = "unshared_weights"
    shared_kernels = staticmethod(weights_kernels)

    def run(self, inputs: Sequence[Any], outputs: Outputs, kernels: Kernels) -> None:
        image, top, taps = inputs
        context, how = self.context, self.settings
        regions = top.shape[2:] if how.unshared else ()
        shape = (top.shape[1], *regions, image.shape[1] // how.groups, *map(int, taps))
        axes = self._check(image.shape, shape, top.shape)
        self._refuse_empty(shape[-how.dims :], [*image.shape[:2], top.shape[1]])
        if not image.size or not top.size or 0 in shape:
            output_zeros(outputs[0], context, shape, image.dtype)
            return
        out = output_array(outputs[0], context, shape, image.dtype)
        top = self._contiguous(1, top, kernels)
        if how.unshared:
            self._unshared(kernels, axes, how.flip, image, top, out)
        else:
            call = ConvolutionCall(kernels, context, self.precision)
            weights(call, axes, how.flip, how.groups, image, top, out)


class ImageGradient(ConvolutionOperation):
    """The gradient of a convolution with respect to the images, given filters and the gradient of the result.

    The third input is a host vector with the lengths of the images.
    """

    unshared_kernel = "unshared_inputs"
    shared_kernels = staticmethod(correlate_kernels)

    @property
    def contiguous_inputs(self) -> tuple[int, ...]:
        return (0, 1) if self.settings.unshared else (0,)

    def run(self, inputs: Sequence[Any], outputs: Outputs, kernels: Kernels) -> None:
        kernel, top, lengths = inputs
        context, how = self.context, self.settings
        channels = kernel.shape[-how.dims - 1]
        shape = (top.shape[0], channels * how.groups, *map(int, lengths))
        axes = self._check(shape, kernel.shape, top.shape)
        self._refuse_empty([*kernel.shape[-how.dims :], *top.shape[2:]], [*shape, top.shape[1]])
        if not kernel.size or not top.size or 0 in shape:
            output_zeros(outputs[0], context, shape, top.dtype)
            return
        kernel, flip = self._filters(0, kernel, kernels)
        if how.unshared:
            out = output_array(outputs[0], context, shape, top.dtype)
            top = self._contiguous(1, top, kernels)
            numbers = [how.groups, top.shape[1] // how.groups, channels, int(flip)]
            numbers += [getattr(axis, name) for axis in axes for name in _NUMBERS]
            args = [*numbers, top, kernel, out]
            launch_chunks(kernels[self.unshared_kernel], context, size_of(out.shape), *args, least=1)
            return
        products = plan.backward(axes, flip, lanes(top.dtype.name, context))
        make = output_array if products.complete else output_zeros
        out = make(outputs[0], context, shape, top.dtype)
        rows, channels, (by_group, by_row, by_channel) = self._groups(kernel)
        filters = FilterGroups(kernel, how.groups, channels, rows, (by_group, by_channel, by_row))
        correlate(ConvolutionCall(kernels, context, self.precision), products, top, filters, out)
