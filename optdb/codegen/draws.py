"""Draws from the discrete distributions in the rows of a matrix, from uniform random numbers.

A work item processes the draws of one row in the order of Theano's C code, so the results are equal: probabilities are
accumulated in double precision, and the first outcome where the sum exceeds the random number is drawn. Theano's Python
code accumulates in single precision when drawing without replacement.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from optdb.codegen.kernels import Kernel
from optdb.codegen.layout import launch_striding, steps_of
from optdb.codegen.operation import ArraySpec, Kernels, Operation, Outputs, output_array
from optdb.codegen.source import ROUND_EACH_STEP, functions, type_words, typed, work_dtype
from optdb.runtime.arrays import empty

_KERNELS = functions("draws.cl")


@dataclass(eq=False)
class CountDraws(Operation):
    """The number of times each outcome is drawn, for each row of probabilities.

    The inputs are the probabilities, one row for each distribution; the random numbers, a vector with the first draw
    of every row, then the second draw of every row, and so on; and the number of draws, a host integer.
    """

    #: The kernel's name, and whether it works on a copy of the probabilities.
    kernel: ClassVar[str] = "count_draws"
    changes_probabilities: ClassVar[bool] = False

    #: Specs of the probabilities and of the random numbers, both floating-point.
    p: ArraySpec
    u: ArraySpec
    #: The dtype of the output.
    dtype: str
    #: Whether to draw with replacement.
    replace: bool = False

    def kernels(self) -> list[Kernel]:
        words = {**type_words(self.p.dtype, "P_"), **type_words(self.u.dtype, "U_"), "REPLACE": int(self.replace)}
        return [Kernel(ROUND_EACH_STEP + typed(_KERNELS[self.kernel], self.dtype, **words))]

    def run(self, inputs: Sequence[Any], outputs: Outputs, kernels: Kernels) -> None:
        p, u, n = inputs[0], inputs[1], int(inputs[2])
        columns = self._columns(p.shape[1], n)
        if u.shape[0] != p.shape[0] * n:
            raise ValueError(
                f"unis.shape[0] != pvals.shape[0] * n: {u.shape[0]} numbers for {n} draws of {p.shape[0]} rows"
            )
        out = output_array(outputs[0], self.context, (p.shape[0], columns), self.dtype)
        left = [empty(self.context, p.shape, work_dtype(p.dtype))] if self.changes_probabilities else []
        args = [*p.shape, n, p, *steps_of(p), u, *steps_of(u), out, *left]
        launch_striding(kernels[self.kernel], self.context, *args)

    def _columns(self, outcomes: int, draws: int) -> int:
        return outcomes


class ChooseOutcomes(CountDraws):
    """The outcomes drawn for each row of probabilities; -1 where the row's sum is too small.

    Inputs and parameters are those of `CountDraws`.
    """

    kernel, changes_probabilities = "choose", True

    def _columns(self, outcomes: int, draws: int) -> int:
        if draws > outcomes:
            raise ValueError(
                "Cannot sample without replacement n samples bigger than the size of the distribution: "
                f"{draws} of {outcomes}"
            )
        return draws
