"""Softmax and cross entropies of the rows of a matrix, and their gradients.

The maximum is subtracted first, so that no exponential overflows. On a CPU, an item processes whole rows; on other
devices, a team of items within a work group shares a row. The class of each row is an integer on the host, which checks
that the integer is valid.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from optdb.codegen.indexing.index_layout import host_indexes
from optdb.codegen.kernels import CompiledKernel, Kernel, ctype
from optdb.codegen.layout import launch_striding, steps_of, teams
from optdb.codegen.operation import Kernels, Operation, Outputs, output_array, output_zeros
from optdb.codegen.source import filled, functions, type_words, typed, work_dtype
from optdb.numpy_types import HostArray
from optdb.runtime.arrays import Array
from optdb.runtime.context import Context
from optdb.runtime.tables import computed, table_on_device

#: Maximum work-group size; a power of two.
GROUP = 256
#: Number of single elements, and number of vectors of four, that an item loads before it uses them.
_SEVERAL, _FOURS = 4, 4
#: Minimum number of elements that each item of a team processes, if the row is long enough. Items keep as many elements
#: of a softmax in registers.
_EACH = 8

_CODE = functions("cross_entropy.cl")
#: Code that selects an item's rows on devices that run items serially, and code that selects a team's row on other
#: devices.
_SERIAL = """const uint team = 1, lane = 0;
    for (ga_size i = get_global_id(0); i < rows; i += get_global_size(0))"""
_TEAM = """const uint team = (uint)items, lane = (uint)LID_0 % team, begin = (uint)LID_0 - lane;
    const ga_size i = GID_0 * (LDIM_0 / team) + LID_0 / team;"""
#: ``FOLD(x, expression)`` replaces x with the fold of a team's values; the expression combines u and v.
_FOLD = re.compile(r"FOLD\((\w+), (.*)\)$", re.MULTILINE)
_FOLDED = r"""shared[LID_0] = \1;
    for (uint half_of = team / 2; half_of > 0; half_of /= 2) {
        local_barrier();
        if (lane < half_of) {
            const W u = shared[LID_0], v = shared[LID_0 + half_of];
            shared[LID_0] = \2;
        }
    }
    local_barrier();
    \1 = shared[begin];
    local_barrier();"""


def _row_kernel(name: str, context: Context) -> str:
    if context.profile.runs_items_serially:
        return filled(_FOLD.sub("", _CODE[name]), TEAM=_SERIAL, SHARED="", UNROLL="")
    code = _FOLD.sub(_FOLDED, {**_CODE, **functions("row_teams.cl")}[name])
    words = {"TEAM": _TEAM, "SHARED": f"LOCAL_MEM W shared[{GROUP}];", "UNROLL": f"#pragma unroll {_SEVERAL}"}
    return filled(code, **words, GROUP=GROUP, SEVERAL=_SEVERAL, FOURS=_FOURS, EACH=_EACH)


def _launch_rows(kernel: CompiledKernel, context: Context, rows: int, columns: int, *args: Any) -> None:
    if context.profile.runs_items_serially:
        launch_striding(kernel, context, rows, columns, 1, *args)
        return
    items, group, team = teams(context, GROUP, rows, -(-columns // _EACH))
    kernel.call(items, group, rows, columns, team, *args)


#: Kernel parameters of a softmax.
_INPUTS = "ARRAY T *x, ga_ssize x0, ga_ssize x1"
#: Placeholders for the two possible results of an element v: its weight, or the logarithm of its weight.
_OF_WEIGHT = {"RESULT": "exp(v - largest) / sum", "WEIGH": "kept[e] = weight;", "RESULT_OF_KEPT": "v / sum"}
_OF_LOGARITHM = {**dict.fromkeys(("RESULT", "RESULT_OF_KEPT"), "v - largest - log_sum"), "WEIGH": ""}
#: Placeholders for the two possible results: the softmax, or the gradient with respect to its input.
_WEIGHTS = {"GRADIENT": "", "READ_GRADIENT": "", "RESULT_OF_WEIGHT": "const W result = weight;"}
_GRADIENT = {
    "GRADIENT": ", ARRAY T *dy, ga_ssize dy0",
    "READ_GRADIENT": "const W by = LOAD(dy[(ga_ssize)i * dy0]);\nconst ga_size its_class = (ga_size)y[i];",
    "RESULT_OF_WEIGHT": "const W part = by * weight, result = j == its_class ? part - by : part;",
}
#: Expressions for element j in row i of a matrix, and for element j of a vector that all rows share.
_OF_MATRIX, _OF_VECTOR = "LOAD(x[(ga_ssize)i * x0 + (ga_ssize)(j) * x1])", "LOAD(b[(ga_ssize)(j) * b0])"


@dataclass(eq=False)
class _OfRows(Operation):
    """Base class of softmax and its gradient: row-wise operations on matrices, with C-contiguous results."""

    #: Floating-point dtype of all arrays.
    dtype: str

    def run(self, inputs: Sequence[Any], outputs: Outputs, kernels: Kernels) -> None:
        shape = inputs[-1].shape if inputs[-1].ndim == 2 else inputs[0].shape
        if any(tuple(x.shape) != tuple(shape)[-x.ndim :] for x in inputs):
            raise ValueError(f"{self} got arrays of shapes {' and '.join(str(tuple(x.shape)) for x in inputs)}")
        out = output_array(outputs[0], self.context, shape, self.dtype)
        if not out.size:
            return
        args = [arg for x in inputs for arg in (x, *steps_of(x))]
        (kernel,) = kernels.values()
        _launch_rows(kernel, self.context, *shape, *args, out)


@dataclass(eq=False)
class Softmax(_OfRows):
    """The softmax of each row of a matrix, or its logarithm; with `bias`, an input vector is added to each row."""

    logarithm: bool = False
    bias: bool = False

    def kernels(self) -> list[Kernel]:
        words = {
            "INPUTS": f"{_INPUTS}, ARRAY T *b, ga_ssize b0" if self.bias else _INPUTS,
            "ELEMENT": f"{_OF_MATRIX} + {_OF_VECTOR}" if self.bias else _OF_MATRIX,
            **(_OF_LOGARITHM if self.logarithm else _OF_WEIGHT),
        }
        return [Kernel(typed(filled(_row_kernel("softmax", self.context), **words), self.dtype))]


class SoftmaxGradient(_OfRows):
    """The gradient of a softmax. The inputs are the gradient with respect to the softmax's result, and that result."""

    def kernels(self) -> list[Kernel]:
        return [Kernel(typed(_row_kernel("softmax_gradient", self.context), self.dtype))]


@dataclass(eq=False)
class SoftmaxCrossEntropy(Operation):
    """The cross entropy, the softmax and the most likely class of each row of a matrix.

    The inputs are the matrix, a vector that is added to each row, and the classes (a host array). With
    `gives_gradient`, a fourth input is the gradient with respect to the entropies (one number, or one for each row),
    and the second output is the gradient with respect to the matrix.
    """

    dtype: str
    #: The dtype of the most likely classes.
    index_dtype: str
    gives_gradient: bool = False

    reads_tables_alone = True

    @property
    def _name(self) -> str:
        return "crossentropy_and_gradient" if self.gives_gradient else "crossentropy"

    def kernels(self) -> list[Kernel]:
        words = {**(_GRADIENT if self.gives_gradient else _WEIGHTS), "crossentropy": self._name}
        code = filled(_row_kernel("crossentropy", self.context), **words)
        return [Kernel(typed(code, self.dtype, INDEX=ctype(self.index_dtype)))]

    def run(self, inputs: Sequence[Any], outputs: Outputs, kernels: Kernels) -> None:
        x, b, y, *given = inputs
        rows, columns = x.shape
        if b.shape[0] != columns:
            raise ValueError(f"{self} has a bias of {b.shape[0]} numbers for {columns} columns")
        classes = _classes(self, y, x.shape)
        gradient = [arg for dy in given for arg in (dy, _row_stride(self, dy, rows))]
        results = [
            output_array(storage, self.context, shape, dtype)
            for storage, shape, dtype in zip(
                outputs, [(rows,), x.shape, (rows,)], [self.dtype, self.dtype, self.index_dtype], strict=True
            )
        ]
        if x.size:
            args = [columns, x, *steps_of(x), b, *steps_of(b), classes, *gradient, *results]
            _launch_rows(kernels[self._name], self.context, rows, *args)


@dataclass(eq=False)
class SoftmaxCrossEntropyGradient(Operation):
    """The gradient of the cross entropy of a softmax.

    The inputs are the gradient with respect to the entropies (one number, or one for each row), the softmax, and the
    classes on the host.
    """

    dtype: str

    reads_tables_alone = True

    def kernels(self) -> list[Kernel]:
        return [Kernel(typed(_row_kernel("crossentropy_gradient", self.context), self.dtype))]

    def run(self, inputs: Sequence[Any], outputs: Outputs, kernels: Kernels) -> None:
        dy, sm, y = inputs
        rows, columns = sm.shape
        dy_step = _row_stride(self, dy, rows)
        classes = _classes(self, y, sm.shape)
        dx = output_array(outputs[0], self.context, sm.shape, sm.dtype)
        if sm.size:
            args = [columns, dy, dy_step, sm, *steps_of(sm), classes, dx]
            _launch_rows(kernels["crossentropy_gradient"], self.context, rows, *args)


@dataclass(eq=False)
class CrossEntropy(Operation):
    """The cross entropy of each row of the first input.

    Each row is a distribution. The class of a row is an index into the row, and may be negative.
    """

    dtype: str

    reads_tables_alone = True

    def kernels(self) -> list[Kernel]:
        return [Kernel(typed(_CODE["lookup"], self.dtype))]

    def run(self, inputs: Sequence[Any], outputs: Outputs, kernels: Kernels) -> None:
        p, classes = inputs
        columns = _columns(self, classes, p.shape[0], p.shape)
        y = output_array(outputs[0], self.context, p.shape[:1], p.dtype)
        launch_striding(kernels["lookup"], self.context, y.size, p, *steps_of(p), columns, y)


@dataclass(eq=False)
class CrossEntropyGradient(Operation):
    """The gradient of the cross entropy with respect to a row's distribution; it is zero except at the row's class.

    The inputs are the gradient with respect to the entropies, the distribution, and the classes (a host array).
    """

    gradient_dtype: str
    dtype: str

    reads_tables_alone = True

    def kernels(self) -> list[Kernel]:
        quotient = ctype(work_dtype(np.promote_types(self.gradient_dtype, self.dtype)))
        words = type_words(self.gradient_dtype, "G_")
        return [Kernel(typed(_CODE["lookup_gradient"], self.dtype, **words, QUOTIENT=quotient))]

    def run(self, inputs: Sequence[Any], outputs: Outputs, kernels: Kernels) -> None:
        g, p, classes = inputs
        rows = g.shape[0]
        if rows > p.shape[0]:
            raise IndexError(f"{self} has {rows} gradients for {p.shape[0]} rows")
        columns = _columns(self, classes, rows, p.shape)
        dp = output_zeros(outputs[0], self.context, p.shape, p.dtype)
        args = [p.shape[1], g, *steps_of(g), p, *steps_of(p), columns, dp]
        launch_striding(kernels["lookup_gradient"], self.context, rows, *args)


def _row_stride(operation: Operation, dy: Array, rows: int) -> int:
    """Return the distance between the gradients of neighbouring rows, which is 0 if all rows share one gradient."""
    if dy.ndim and dy.shape[0] not in (1, rows):
        raise ValueError(f"{operation} has {dy.shape[0]} gradients for {rows} rows")
    return steps_of(dy)[0] if dy.ndim and dy.shape[0] > 1 else 0


def _classes(operation: Operation, y: HostArray, shape: Sequence[int]) -> Array:
    """Return the classes on the device; raise ValueError unless each row has a class that is a valid column."""
    rows, columns = shape
    if y.shape[0] != rows:
        raise ValueError(f"{operation} has {y.shape[0]} classes for {rows} rows")
    try:
        classes = computed("classes", y, columns)
    except ValueError as error:
        raise ValueError(f"{operation}: {error}") from None
    return table_on_device(operation.context, classes)


def _columns(operation: Operation, classes: HostArray, rows: int, shape: Sequence[int]) -> Array:
    if classes.shape[0] < rows:
        raise IndexError(f"{operation} has {classes.shape[0]} classes for {rows} rows")
    columns = host_indexes(classes if classes.shape[0] == rows else classes[:rows], shape[1], operation, axis=1)
    return table_on_device(operation.context, columns)
