"""The kernels that apply a scalar op of the host to the elements of arrays."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from optdb.codegen.elements import CODES, ElementKernels
from optdb.codegen.elementwise import WIDTH, ElementCode, Operand
from optdb.codegen.scalars.types import is_complex
from optdb.opencl.kernels import Kernel
from optdb.opencl.scalars.code import scalar_code, signature
from optdb.opencl.scalars.program import Program

if TYPE_CHECKING:
    from optdb.runtime.device_profiles import DeviceKind


def scalar_elements(
    op: Any,
    dtypes: Sequence[str],
    out_dtypes: Sequence[str],
    single: Sequence[bool],
    ndim: int,
    name: str = "elements",
    device_kind: DeviceKind | None = None,
) -> ElementKernels:
    """Return the kernels that apply a scalar op; `single` tells which inputs are arrays of one element.

    If the kind of device is known, a processor computes in vectors, but for complex numbers.

    Raises
    ------
    NoCode
        If there is no OpenCL C for it.
    """
    op, numbers = op.with_arguments() if isinstance(op, Program) and op.takes_arguments else (op, ())
    kinds = tuple([number.dtype for number in numbers])
    code = _code_of(op, tuple(dtypes), tuple(out_dtypes), tuple(single), ndim, name, device_kind, kinds)
    return ElementKernels(code, [number.value.astype(_argument_dtype(number.dtype)) for number in numbers])


@functools.lru_cache(maxsize=CODES)
def _code_of(
    op: Any,
    dtypes: tuple[str, ...],
    out_dtypes: tuple[str, ...],
    single: tuple[bool, ...],
    ndim: int,
    name: str,
    device_kind: DeviceKind | None,
    numbers: tuple[str, ...],
) -> ElementCode:
    """Return the code for a scalar op, whose last inputs are numbers of some dtypes; many nodes of a graph share it."""
    all_dtypes = (*dtypes, *numbers)
    if device_kind == "cpu" and any(map(is_complex, signature(op, all_dtypes).computed)):
        device_kind = None
    inputs = tuple(
        [Operand.of(f"i{i}", dtype, is_single) for i, (dtype, is_single) in enumerate(zip(dtypes, single, strict=True))]
    )
    outputs = tuple([Operand.of(f"o{i}", dtype) for i, dtype in enumerate(out_dtypes)])
    arguments = tuple([(f"c{i}", _argument_dtype(dtype)) for i, dtype in enumerate(numbers)])
    names = [name for name, _ in arguments]
    in_names, out_names = [*(x.name for x in inputs), *names], [x.name for x in outputs]
    uniform = [*(x.name for x in inputs if x.single), *names]
    code = scalar_code(op, all_dtypes, in_names, out_names, uniform, WIDTH if device_kind == "cpu" else 1)
    flags = Kernel.get_flags(*sorted(code.dtypes))
    return ElementCode(
        inputs, outputs, code.statements, ndim, name, code.once, code.helpers, arguments, flags, device_kind
    )


def _argument_dtype(dtype: str) -> str:
    """Return the dtype in which a kernel takes a number of `dtype`: the one that it computes in."""
    return "float32" if dtype == "float16" else dtype
