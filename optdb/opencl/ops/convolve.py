"""Convolutions on the device, and their gradients.

They are counterparts of the host's abstract convolutions in two and three dimensions, which
differ in `convdim`. Each checks shapes, handles empty arrays, and calls the module that
computes: `correlate`, `weights`, or `unshared`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

from optdb.codegen.convolve import plan
from optdb.codegen.convolve.correlate import FilterGroups, correlate, correlate_kernels, lanes
from optdb.codegen.convolve.geometry import Axis, axes_of
from optdb.codegen.convolve.unshared import unshared, unshared_inputs, unshared_kernels
from optdb.codegen.convolve.weights import weights, weights_kernels
from optdb.codegen.elements import contiguous, copying
from optdb.host.api import ops as host
from optdb.host.api.graph import Apply, Variable
from optdb.host.api.variables import patternbroadcast
from optdb.opencl.kernels import Context, Kernel, Kernels, OpenCLKernelBase, Outputs, output_array, output_zeros
from optdb.opencl.ops.counterpart import Counterpart
from optdb.opencl.type import OpenCLArrayType
from optdb.runtime.arrays import Array


class _Convolution(Counterpart, OpenCLKernelBase):
    """The base of the three ops. The `shape` that gradients take stays on the host."""

    device_inputs = slice(0, 2)
    #: The name of the kernel for unshared filters, and the function that returns the kernels for shared ones.
    unshared_kernel: ClassVar[str]
    kernels: ClassVar[Callable[[str, Context], list[Kernel]]]

    def make_node(self, *inputs: Any) -> Apply:
        """Return the node for two arrays of floats of one dtype, and for gradients a shape."""
        node = super().make_node(*inputs)
        dtypes = {x.type.dtype for x in node.inputs[:2]}
        if len(dtypes) > 1 or not all(dtype.startswith("float") for dtype in dtypes):
            raise TypeError(f"{self} takes floats of one dtype, not {' and '.join(sorted(dtypes))}: cast them first")
        return node

    def grad(self, inputs: Sequence[Variable], grads: Sequence[Variable]) -> list[Variable]:
        """Return the gradients for the two arrays, each on the device or host of its array; the shape has none."""
        gradients = self.gradients(inputs, grads[0])
        return [_as(grad, x) for grad, x in zip(gradients, inputs)] + [host.disconnected() for _ in inputs[2:]]

    def gradients(self, inputs: Sequence[Variable], grad: Variable) -> tuple[Variable, Variable]:
        """Return the gradients for the two arrays."""
        raise NotImplementedError(f"{type(self).__name__} has to define gradients(inputs, grad)")

    def gpu_kernels(self, node: Apply, name: str) -> list[Kernel]:
        dtype, context = node.outputs[0].type.dtype, self.get_context(node)
        kernels = (
            unshared_kernels(dtype, context, self.unshared_kernel) if self.unshared else self.kernels(dtype, context)
        )
        for i in self.contiguous_inputs:
            kernels += copying(node.inputs[i].type, f"copy{i}").kernels()
        return kernels

    @property
    def contiguous_inputs(self) -> tuple[int, ...]:
        """Which inputs are copied where they lie with gaps."""
        return (1,)

    def _contiguous(self, i: int, x: Array, node: Apply, kernels: Kernels, context: Context) -> Array:
        return contiguous(x, node.inputs[i].type, kernels, context, f"copy{i}")

    def _axes(self, image: Sequence[int], kernel: Sequence[int]) -> tuple[Axis, Axis, Axis]:
        """Return the axes of a convolution of one image with one filter, if the filter fits.

        As on the host, a filter may be longer than the padded image by one element: the result is empty then.
        """
        axes = axes_of(image, kernel, self.border_mode, self.subsample, self.filter_dilation)
        if not all(axis.fits for axis in axes):
            raise ValueError(
                f"{self} cannot convolve images of {tuple(image)} with filters of {tuple(kernel)}: nothing is left. "
                "Pad the images, or take smaller filters, of at least one element"
            )
        return axes

    def _refuse_empty(self, lengths: Sequence[int], counts: Sequence[int]) -> None:
        """Refuse axes of length 0 in three dimensions, if there are images, channels and filters to compute with.

        In two dimensions the host computes zeros, or an empty result. In three it calls SciPy, which raises.
        """
        if self.convdim == 3 and 0 in lengths and 0 not in counts:
            raise ValueError(f"{self} takes no axis of length 0 in three dimensions: the lengths are {tuple(lengths)}")

    def _check(self, image: Sequence[int], kernel: Sequence[int], top: Sequence[int] | None = None) -> tuple[Axis, ...]:
        """Return the axes for the shapes of images, filters and results, if these fit; the last may be left out."""
        # How many images there are may be a size of a trace; all else decides over tables and kernels.
        image, kernel = (image[0], *map(int, image[1:])), tuple(map(int, kernel))
        axes = self._axes(image[2:], kernel[-self.convdim :])
        out = tuple(axis.out for axis in axes)[-self.convdim :]
        shapes = f"images of shape {image} and filters of shape {kernel}"
        if kernel[-self.convdim - 1] * self.num_groups != image[1]:
            raise ValueError(f"{self} has {shapes}, in {self.num_groups} groups: the numbers of channels do not fit")
        if kernel[0] % self.num_groups:
            raise ValueError(f"{self} cannot divide {kernel[0]} filters into {self.num_groups} groups")
        if self.unshared and kernel[1 : 1 + self.convdim] != out:
            raise ValueError(f"{self} has {shapes}: filters are needed for {out} outputs")
        if top is not None and tuple(top) != (image[0], kernel[0], *out):
            raise ValueError(f"{self} has {shapes}, which do not give a result of shape {tuple(top)}")
        return axes


class OpenCLConv(_Convolution, host.AbstractConv):
    """The convolution of images with filters."""

    unshared_kernel = "unshared_forward"
    kernels = staticmethod(correlate_kernels)

    def gradients(self, inputs: Sequence[Variable], grad: Variable) -> tuple[Variable, Variable]:
        image, kernel = inputs
        axes = slice(-self.convdim, None)
        return (
            OpenCLConvGradInputs.like(self)(kernel, grad, image.shape[axes]),
            OpenCLConvGradWeights.like(self)(image, grad, kernel.shape[axes]),
        )

    def run(self, node: Apply, inputs: Sequence[Any], outputs: Outputs, kernels: Kernels, context: Context) -> None:
        image, kernel = inputs
        axes = self._check(image.shape, kernel.shape)
        shape = (image.shape[0], kernel.shape[0], *(axis.out for axis in axes[-self.convdim :]))
        self._refuse_empty(shape[2:], [*image.shape[:2], kernel.shape[0]])
        if not image.size or not kernel.size or 0 in shape:
            output_zeros(outputs[0], context, shape, image.dtype)
            return
        out = output_array(outputs[0], context, shape, image.dtype)
        kernel = self._contiguous(1, kernel, node, kernels, context)
        flip, groups = self.filter_flip, self.num_groups
        if self.unshared:
            unshared(kernels, context, self.unshared_kernel, axes, flip, groups, image, kernel, out)
            return
        how = plan.forward(axes, flip, lanes(image.dtype.name, context))
        rows, channels = kernel.shape[0] // groups, kernel.shape[1]
        taps = kernel.size // (kernel.shape[0] * channels)
        shape = FilterGroups(groups, rows, channels, (rows * channels * taps, channels * taps, taps))
        correlate(kernels, context, how, image, kernel, shape, out)


class OpenCLConvGradWeights(_Convolution, host.AbstractConvGradWeights):
    """The gradient of a convolution for the filters, from images and the gradient of the result."""

    unshared_kernel = "unshared_weights"
    kernels = staticmethod(weights_kernels)

    def gradients(self, inputs: Sequence[Variable], grad: Variable) -> tuple[Variable, Variable]:
        image, top = inputs[:2]
        shape = image.shape[-self.convdim :]
        return OpenCLConvGradInputs.like(self)(grad, top, shape), OpenCLConv.like(self)(image, grad)

    def run(self, node: Apply, inputs: Sequence[Any], outputs: Outputs, kernels: Kernels, context: Context) -> None:
        image, top, taps = inputs
        regions = top.shape[2:] if self.unshared else ()
        shape = (top.shape[1], *regions, image.shape[1] // self.num_groups, *map(int, taps))
        axes = self._check(image.shape, shape, top.shape)
        self._refuse_empty(shape[-self.convdim :], [*image.shape[:2], top.shape[1]])
        if not image.size or not top.size or 0 in shape:
            output_zeros(outputs[0], context, shape, image.dtype)
            return
        out = output_array(outputs[0], context, shape, image.dtype)
        top = self._contiguous(1, top, node, kernels, context)
        flip, groups = self.filter_flip, self.num_groups
        if self.unshared:
            unshared(kernels, context, self.unshared_kernel, axes, flip, groups, image, top, out)
        else:
            weights(kernels, context, axes, flip, groups, image, top, out)


class OpenCLConvGradInputs(_Convolution, host.AbstractConvGradInputs):
    """The gradient of a convolution for the images, from filters and the gradient of the result."""

    unshared_kernel = "unshared_inputs"
    kernels = staticmethod(correlate_kernels)

    @property
    def contiguous_inputs(self) -> tuple[int, ...]:
        return (0, 1) if self.unshared else (0,)

    def gradients(self, inputs: Sequence[Variable], grad: Variable) -> tuple[Variable, Variable]:
        kernel, top = inputs[:2]
        shape = kernel.shape[-self.convdim :]
        return OpenCLConvGradWeights.like(self)(grad, top, shape), OpenCLConv.like(self)(grad, kernel)

    def run(self, node: Apply, inputs: Sequence[Any], outputs: Outputs, kernels: Kernels, context: Context) -> None:
        kernel, top, lengths = inputs
        channels = kernel.shape[-self.convdim - 1]
        shape = (top.shape[0], channels * self.num_groups, *map(int, lengths))
        axes = self._check(shape, kernel.shape, top.shape)
        self._refuse_empty([*kernel.shape[-self.convdim :], *top.shape[2:]], [*shape, top.shape[1]])
        if not kernel.size or not top.size or 0 in shape:
            output_zeros(outputs[0], context, shape, top.dtype)
            return
        kernel = self._contiguous(0, kernel, node, kernels, context)
        flip, groups = self.filter_flip, self.num_groups
        if self.unshared:
            out = output_array(outputs[0], context, shape, top.dtype)
            top = self._contiguous(1, top, node, kernels, context)
            unshared_inputs(kernels, context, axes, flip, groups, kernel, top, out)
            return
        how = plan.backward(axes, flip, lanes(top.dtype.name, context))
        make = output_array if how.complete else output_zeros
        out = make(outputs[0], context, shape, top.dtype)
        rows = kernel.shape[0] // groups
        taps = kernel.size // (kernel.shape[0] * channels)
        shape = FilterGroups(groups, channels, rows, (rows * channels * taps, taps, channels * taps))
        correlate(kernels, context, how, top, kernel, shape, out)


def _as(grad: Variable, x: Variable) -> Variable:
    """Return a gradient with the broadcast pattern of its variable."""
    grad = patternbroadcast(grad, x.type.broadcastable)
    return x.type.filter_variable(grad) if isinstance(x.type, OpenCLArrayType) else grad
