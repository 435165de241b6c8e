"""Scalar programs applied elementwise to arrays, with broadcasting; the results may be slices of one array."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from optdb.codegen.elements import CODES, ElementKernels
from optdb.codegen.elementwise import WIDTH, ElementCode, Operand
from optdb.codegen.kernels import Kernel
from optdb.codegen.kernels.launching import LaunchCache
from optdb.codegen.operation import ArraySpec, Kernels, Operation, Outputs, check_lengths, output_array
from optdb.codegen.scalars.code import computed_dtypes, scalar_code
from optdb.codegen.scalars.program import ScalarProgram
from optdb.codegen.scalars.types import is_complex
from optdb.codegen.views import broadcast_view, subtensor
from optdb.runtime.arrays import empty, fill_zeros
from optdb.runtime.device_profiles import DeviceKind
from optdb.runtime.sizes import as_int


@dataclass(eq=False)
class Elementwise(Operation):
    """A scalar program applied elementwise to the arrays that `inputs` describes, broadcast to one shape."""

    program: ScalarProgram
    #: Specs of the arrays, which have the same rank. Lengths may differ only where one of them is known to be 1.
    inputs: Sequence[ArraySpec]
    #: Maps an output computed in place to the input that it overwrites.
    overwritten: Mapping[int, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._elements = _elements_of(self)
        self._out_dtypes = self.program.out_dtypes
        self._shapes: LaunchCache[tuple[int, ...]] = LaunchCache()

    def __str__(self) -> str:
        return f"Elementwise{{{self.program}}}"

    def kernels(self) -> list[Kernel]:
        return self._elements.kernels()

    def run(self, inputs: Sequence[Any], outputs: Outputs, kernels: Kernels) -> None:
        key = tuple([x.shape for x in inputs])
        shape = self._shapes.get(key, lambda: common_shape(self, self.inputs, inputs))
        results = []
        for i, (dtype, storage) in enumerate(zip(self._out_dtypes, outputs, strict=True)):
            # If another input violates its broadcast pattern, the shapes differ, and the input to overwrite cannot hold
            # the result.
            if i in self.overwritten and inputs[self.overwritten[i]].shape == shape:
                storage[0] = inputs[self.overwritten[i]]
            else:
                output_array(storage, self.context, shape, dtype)
            results.append(storage[0])
        self._elements.launch(kernels, self.context, shape, [*inputs, *results])


def common_shape(op: Any, specs: Sequence[ArraySpec], arrays: Sequence[Any]) -> tuple[int, ...]:
    """Return the shape that arrays or tensors are broadcast to; raise ValueError if lengths do not match.

    An axis of the result has length 0 if an array has length 0 where its spec promises length 1.
    """
    check_lengths(op, specs, arrays, empty=True)
    shape = [1] * specs[0].ndim
    for axis in range(len(shape)):
        # Do not use a set: during tracing, equal lengths need not have equal hashes.
        lengths = [array.shape[axis] for array, spec in zip(arrays, specs) if not spec.broadcastable[axis]]
        if any(length != lengths[0] for length in lengths[1:]):
            shapes = ", ".join(str(tuple(array.shape)) for array in arrays)
            raise ValueError(f"Dimension mismatch at axis {axis} of {op}; shapes are {shapes}")
        if lengths:
            shape[axis] = lengths[0]
        if all(array.shape[axis] != 0 for array, spec in zip(arrays, specs) if spec.broadcastable[axis]):
            continue
        if lengths and lengths[0] > 1:
            check_lengths(op, specs, arrays)
        shape[axis] = 0
    return tuple(shape)


def program_elements(
    program: ScalarProgram,
    single: Sequence[bool],
    ndim: int,
    name: str = "elements",
    device_kind: DeviceKind | None = None,
    wrong_functions: frozenset[str] = frozenset(),
) -> ElementKernels:
    """Return the kernels that apply a program; `single` contains, for each input, whether it has one element.

    If `device_kind` is 'cpu', the kernels use vectors unless some numbers are complex. `wrong_functions` are the
    driver's `wrong_vector_functions`. Raise NoCode if the program has no OpenCL C code.
    """
    program, numbers = program.with_arguments() if program.takes_arguments else (program, ())
    code = _code_of(program, tuple(single), ndim, name, device_kind, wrong_functions)
    return ElementKernels(code, [number.value.astype(_argument_dtype(number.dtype)) for number in numbers])


def _elements_of(operation: Elementwise | PlacedElementwise) -> ElementKernels:
    profile, single = operation.context.profile, [x.single for x in operation.inputs]
    wrong = profile.quirks.wrong_vector_functions
    return program_elements(
        operation.program, single, operation.inputs[0].ndim, device_kind=profile.device_kind, wrong_functions=wrong
    )


@functools.lru_cache(maxsize=CODES)
def _code_of(
    program: ScalarProgram,
    single: tuple[bool, ...],
    ndim: int,
    name: str,
    device_kind: DeviceKind | None,
    wrong_functions: frozenset[str],
) -> ElementCode:
    """Return the code for a program; inputs after the first ``len(single)`` are scalar parameters."""
    if device_kind == "cpu" and any(map(is_complex, computed_dtypes(program))):
        device_kind = None
    inputs = tuple([Operand.of(f"i{i}", *pair) for i, pair in enumerate(zip(program.dtypes, single))])
    outputs = tuple([Operand.of(f"o{i}", dtype) for i, dtype in enumerate(program.out_dtypes)])
    arguments = [(f"c{i}", _argument_dtype(dtype)) for i, dtype in enumerate(program.dtypes[len(single) :])]
    names = [name for name, _ in arguments]
    in_names, out_names = [*(x.name for x in inputs), *names], [x.name for x in outputs]
    uniform = [*(x.name for x in inputs if x.single), *names]
    width = WIDTH if device_kind == "cpu" else 1
    code = scalar_code(program, in_names, out_names, uniform, width, wrong_functions=wrong_functions)
    flags = Kernel.get_flags(*sorted(code.dtypes))
    return ElementCode(
        inputs, outputs, code.statements, ndim, name, code.once, code.helpers, tuple(arguments), flags, device_kind
    )


def _argument_dtype(dtype: str) -> str:
    return "float32" if dtype == "float16" else dtype


@dataclass(eq=False)
class PlacedElementwise(Operation):
    """A scalar program applied elementwise; its first results are written to slices of an array of zeros.

    The inputs are the array's lengths, as host integers, and the program's inputs. The outputs are the array and the
    program's other results.
    """

    #: The program that computes the results; results written to slices have the array's dtype.
    program: ScalarProgram
    #: Specs of the program's inputs, which have the same rank; see `Elementwise`.
    inputs: Sequence[ArraySpec]
    #: Axis of the slices, and the bounds of the slices, which are ascending and disjoint.
    axis: int
    places: Sequence[tuple[int, int]]

    def __post_init__(self) -> None:
        self._ndim = self.inputs[0].ndim
        self._elements = _elements_of(self)
        self._copying = ElementKernels.copying(self.program.out_dtypes[0], self._ndim)

    def __str__(self) -> str:
        return f"PlacedElementwise{{{self.program}}}"

    def kernels(self) -> list[Kernel]:
        return [*self._elements.kernels(), *self._copying.kernels()]

    def run(self, inputs: Sequence[Any], outputs: Outputs, kernels: Kernels) -> None:
        lengths, arrays = tuple(map(as_int, inputs[: self._ndim])), inputs[self._ndim :]
        if any(length < 0 for length in lengths):
            raise ValueError(f"{self} cannot make an array with a negative length: {lengths}")
        shape = common_shape(self, self.inputs, arrays)
        dtypes = self.program.out_dtypes
        target = output_array(outputs[0], self.context, lengths, dtypes[0])
        if self._has_gaps(lengths[self.axis]):
            fill_zeros(target)
        slabs = [subtensor(target, [slice(None)] * self.axis + [slice(*bounds)]) for bounds in self.places]
        # A result whose shape differs from the shape of its slice is broadcast to the slice.
        results = [slab if slab.shape == shape else empty(self.context, shape, dtypes[0]) for slab in slabs]
        others = zip(outputs[1:], dtypes[len(slabs) :], strict=True)
        stored = [output_array(storage, self.context, shape, dtype) for storage, dtype in others]
        self._elements.launch(kernels, self.context, shape, [*arrays, *results, *stored])
        for slab, result in zip(slabs, results, strict=True):
            if result is not slab:
                value = broadcast_view(result, slab.shape, self)
                self._copying.launch(kernels, self.context, slab.shape, [value, slab])

    def _has_gaps(self, length: int) -> bool:
        reached = 0
        for start, stop in self.places:
            if start > reached:
                return True
            reached = stop
        return reached < length
