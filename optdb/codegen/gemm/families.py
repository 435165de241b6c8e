"""Choices of kernels: each family of kernels returns choices with estimated times, and the cheapest one is compiled.

`products` contains the families for matrix products; `optdb.codegen.convolve.tile_kernels` contains the families for
tiled convolutions.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from optdb.codegen.gemm.problem import Precision, Problem
from optdb.codegen.kernels import CompiledKernel, Kernel, try_compile
from optdb.codegen.kernels.launching import LaunchCache

if TYPE_CHECKING:
    from optdb.runtime.context import Context

#: Maximum number of prepared choices that a context caches.
_KEPT = 1024

#: The result of a choice: the launches of a product, or the tile of a convolution.
Plan = TypeVar("Plan", covariant=True)


@dataclass(frozen=True)
class Choice(Generic[Plan]):
    """A plan and kernels with which a family can compute a request."""

    #: The name that is used in messages and in sets of failed choices.
    name: str
    plan: Plan
    #: Estimated time, which is compared only with choices of the same family.
    seconds: float = 0.0
    #: Returns the kernels to compile if this choice is used; None if it uses the function's own kernels.
    kernels: Callable[[], Sequence[Kernel]] | None = None


@dataclass(frozen=True)
class PreparedChoice(Generic[Plan]):
    """A choice with its compiled kernels; `kernels` is None if the function's own kernels are used."""

    name: str
    plan: Plan
    kernels: Mapping[str, CompiledKernel] | None


#: Returns a family's choices for a context and a request; empty if the family does not support the request. The request
#: is hashable, and contains all parameters, besides the context, that the choice depends on.
Family = Callable[["Context", Any], Sequence[Choice[Plan]]]


def prepared(
    families: tuple[Family[Plan], ...],
    context: Context,
    request: Hashable,
    failed: tuple[str, ...] = (),
    owner: object = None,
) -> PreparedChoice[Plan]:
    """Prepare the cheapest choice that has not failed and whose kernels build; try the families in order.

    The context caches the prepared choice for the context's options and `owner`.
    """

    def prepare() -> PreparedChoice[Plan]:
        for family in families:
            choices = [choice for choice in family(context, request) if choice.name not in failed]
            for choice in sorted(choices, key=lambda choice: choice.seconds):
                if choice.kernels is None:
                    return PreparedChoice(choice.name, choice.plan, None)
                consequence = f"Other kernels are used for {choice.name}"
                kernels = try_compile(choice.kernels(), context, choice.name, consequence)
                if kernels is not None:
                    return PreparedChoice(choice.name, choice.plan, kernels)
        raise AssertionError(f"no family of kernels computes {request}")

    cache: LaunchCache[PreparedChoice[Plan]] = context.kept.setdefault(__name__, LaunchCache(_KEPT))
    return cache.get((context.options, families, request, failed), prepare, owner)


@dataclass(frozen=True)
class Request:
    """A requested matrix product: all parameters, besides the context, that the choice of kernels depends on."""

    #: The product, or the transposed product if the result has contiguous columns.
    problem: Problem
    #: The dtype of the matrices.
    dtype: str
    precision: Precision = "highest"
    #: Whether `problem` is the product of the transposed matrices.
    is_transposed: bool = False
    #: Whether both matrices begin at multiples of 16 bytes.
    is_aligned: bool = False
