"""The operation that reduces arrays over axes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from optdb.codegen.elementwise_programs import common_shape
from optdb.codegen.kernels import Kernel
from optdb.codegen.operation import ArraySpec, Kernels, Operation, Outputs, check_lengths, output_array
from optdb.codegen.reductions.code import Epilogue
from optdb.codegen.reductions.folds import NOTHING
from optdb.codegen.reductions.plan import ReductionPlans
from optdb.codegen.scalars.program import ScalarProgram
from optdb.codegen.source import work_dtype
from optdb.runtime.arrays import Array, from_host


@dataclass(eq=False)
class Reduction(Operation):
    """A reduction over axes of arrays, or of elements computed from arrays; the epilogue's arrays come last."""

    fold: str
    #: Specs of the arrays to reduce, which have the same rank and broadcast to one shape.
    inputs: Sequence[ArraySpec]
    axes: Sequence[int]
    dtype: str
    acc_dtype: str
    #: The prologue computes one or several elements from elements of the arrays, which are folded separately.
    pre: ScalarProgram | None = None
    #: The epilogue computes the outputs from the results, its first inputs, and from elements of other arrays.
    post: ScalarProgram | None = None
    others: Sequence[ArraySpec] = ()

    def __post_init__(self) -> None:
        kept = [axis for axis in range(self.inputs[0].ndim) if axis not in self.axes]
        self._axes = kept, sorted(self.axes)
        pre = self.pre or ScalarProgram.copying(self.inputs[0].dtype)
        results = len(pre.out_dtypes)
        post = self.post or ScalarProgram.copying(*[self.dtype] * results)
        epilogue = Epilogue(post, tuple([x.single for x in self.others]), results)
        self._out_dtypes = post.out_dtypes
        self._plans = ReductionPlans(
            context=self.context,
            fold=self.fold,
            pre=pre,
            single=tuple([x.single for x in self.inputs]),
            fixed=self._fixed(),
            acc_dtype=self.acc_dtype,
            post=epilogue,
            of_all=not kept,
            kept=max(len(kept), 1),
            folded=max(len(self.axes), 1),
        )

    def _fixed(self) -> tuple[bool, ...]:
        """Return, for each input, whether it has one element per result; if all inputs do, return only False."""
        fixed = tuple([not x.single and all(x.broadcastable[axis] for axis in self.axes) for x in self.inputs])
        varies = [x for x, is_fixed in zip(self.inputs, fixed, strict=True) if not (is_fixed or x.single)]
        return fixed if varies else (False,) * len(fixed)

    def __str__(self) -> str:
        before = "" if self.pre is None else f" of {self.pre}"
        after = "" if self.post is None else f", then {self.post}"
        return f"Reduction{{{self.fold.lower()}{before}, axes={self._axes[1]}{after}}}"

    def kernels(self) -> list[Kernel]:
        return self._plans.kernels()

    def run(self, inputs: Sequence[Any], outputs: Outputs, kernels: Kernels) -> None:
        folded, others = inputs[: len(self.inputs)], inputs[len(self.inputs) :]
        shape = self._folded_shape(folded)
        if self.fold not in NOTHING and not all(shape[axis] for axis in self._axes[1]):
            raise ValueError(f"{self} has no elements to reduce, and {self.fold.lower()} of no elements is undefined")
        result = tuple([shape[axis] for axis in self._axes[0]])
        self._check_others(others, result)
        outs = [
            output_array(storage, self.context, result, dtype)
            for storage, dtype in zip(outputs, self._out_dtypes, strict=True)
        ]
        if not outs[0].size:
            return
        if 0 not in shape:
            self._plans.launch(kernels, shape, self._axes, [*folded, *others, *outs])
        elif self.post is None:
            for storage in outputs:
                storage[0] = self._empty_fold(result, self.dtype)
        else:
            whole = self._empty_fold((1, *result), work_dtype(self.acc_dtype))
            self._plans.apply_epilogue(kernels, whole, [*others, *outs])

    def _folded_shape(self, folded: Sequence[Array]) -> tuple[int, ...]:
        if self.pre is not None:
            return common_shape(self, self.inputs, folded)
        check_lengths(self, self.inputs, folded, empty=True)
        return folded[0].shape

    def _check_others(self, others: Sequence[Array], result: tuple[int, ...]) -> None:
        """Check that the epilogue's arrays have the result's shape, except along broadcastable axes."""
        check_lengths(self, self.others, others)
        for array, spec in zip(others, self.others, strict=True):
            lengths = zip(array.shape, result, spec.broadcastable, strict=True)
            if any(length != target for length, target, broadcast in lengths if not broadcast):
                raise ValueError(
                    f"Dimension mismatch in {self}: its epilogue has an array of shape {tuple(array.shape)} for a "
                    f"result of {result}"
                )

    def _empty_fold(self, shape: Sequence[int], dtype: str) -> Array:
        return from_host(self.context, np.full(shape, NOTHING[self.fold]).astype(dtype))
