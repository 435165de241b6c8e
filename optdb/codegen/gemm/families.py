"""The interface of kernel families: a family returns choices with estimated costs, and the best one is prepared.

A family is a function that takes a context and a request, and returns `Choice` objects with estimated times. In the
first family in which the kernels of any choice build, the cheapest of these choices is used. `products` has the
families for matrix products, and `optdb.codegen.convolve.tiles` the families for tiled convolutions.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar

from optdb.codegen.gemm.launches import GemmPlan, run
from optdb.codegen.gemm.problem import Precision, Problem
from optdb.codegen.kernels import CompiledKernel, Kernel, try_compile
from optdb.codegen.kernels.launching import LaunchCache
from optdb.codegen.source import work_dtype
from optdb.runtime.arrays import Array

if TYPE_CHECKING:
    from optdb.runtime.context import Context


#: Maximum number of prepared choices that a context caches.
_KEPT = 1024

#: A choice with compiled kernels.
Prepared = TypeVar("Prepared")
PreparedOut = TypeVar("PreparedOut", covariant=True)


class AnyRequest(Protocol):
    """The hashable parameters, besides the context, that a choice of kernels depends on."""

    @property
    def failed(self) -> frozenset[str]:
        """The names of the choices that failed for this request."""


class Choice(Protocol[PreparedOut]):
    """One of the ways in which a family can compute something."""

    @property
    def name(self) -> str:
        """The name in `AnyRequest.failed`."""

    @property
    def seconds(self) -> float:
        """The estimated time in seconds, for comparison within the family."""

    def prepare(self, context: Context) -> PreparedOut | None:
        """Compile the kernels; return None if the device does not support them."""


#: Returns a kernel family's choices for a request; empty if the family does not support the request.
Family = Callable[["Context", Any], Sequence[Choice[Prepared]]]


def prepared(families: Sequence[Family[Prepared]], context: Context, request: AnyRequest) -> Prepared:
    """Prepare the cheapest choice that builds, from the first family that has any."""
    for family in families:
        choices = [choice for choice in family(context, request) if choice.name not in request.failed]
        for choice in sorted(choices, key=lambda choice: choice.seconds):
            found = choice.prepare(context)
            if found is not None:
                return found
    raise AssertionError(f"no family of kernels computes {request}")


def prepared_once(
    families: Sequence[Family[Prepared]], context: Context, request: AnyRequest, owner: object = None
) -> Prepared:
    """Return the cached result of `prepared`; a context caches one result for each combination of options and owner."""
    cache: LaunchCache[Prepared] = context.kept.setdefault(__name__, LaunchCache(_KEPT))
    return cache.get((context.options, request), lambda: prepared(families, context, request), owner)


@dataclass(frozen=True)
class Request:
    """A requested matrix product: all parameters, besides the context, that the choice of kernels depends on."""

    #: The product or its transpose, chosen so that a result with contiguous columns gets contiguous rows.
    problem: Problem
    #: The dtype of the matrices.
    dtype: str
    precision: Precision = "highest"
    #: Whether `problem` is the product of the transposed matrices.
    is_transposed: bool = False
    #: Whether both matrices begin at multiples of 16 bytes.
    is_aligned: bool = False
    #: Whether kernels may be compiled. An exported file contains only the kernels of its functions.
    may_compile: bool = True
    #: The names of the choices that failed to compute this product.
    failed: frozenset[str] = frozenset()


class Operands(NamedTuple):
    """The arrays and factors of ``z = alpha * dot(a, b) + beta * y``."""

    a: Array
    b: Array
    y: Array
    z: Array
    alpha: float
    beta: float


class PreparedProduct(Protocol):
    """A choice for a matrix product, with compiled kernels."""

    @property
    def name(self) -> str:
        """The name of the choice."""

    def compute(self, kernels: Mapping[str, CompiledKernel], context: Context, operands: Operands) -> bool:
        """Compute the product; on failure, return False and leave the result unchanged."""


@dataclass(frozen=True)
class Launches:
    """A product computed by kernel launches.

    Parameters
    ----------
    name : str
        The name of the choice.
    plan : GemmPlan
        The launches.
    dtype : str
        The dtype of the matrices.
    is_transposed : bool
        Whether the launches compute the product of the transposed matrices.
    kernels : mapping, optional
        The kernels by name; by default, the function's kernels.
    """

    name: str
    plan: GemmPlan
    dtype: str
    is_transposed: bool
    kernels: Mapping[str, CompiledKernel] | None = None

    def compute(self, kernels: Mapping[str, CompiledKernel], context: Context, operands: Operands) -> bool:
        """Enqueue the launches; return False if there is not enough memory for copies of the matrices."""
        a, b, y, z, alpha, beta = operands
        arrays = {"a": b, "b": a, "y": y, "z": z} if self.is_transposed else {"a": a, "b": b, "y": y, "z": z}
        kernels = kernels if self.kernels is None else self.kernels
        try:
            run(self.plan, kernels, context, arrays, alpha, beta, work_dtype(self.dtype))
        except MemoryError:
            if self.plan.copies:
                return False
            raise
        return True


@dataclass(frozen=True)
class KernelChoice:
    """A choice with its own kernels, which are compiled when it is chosen.

    Parameters
    ----------
    name : str
        The name of the choice, also used in messages.
    plan : GemmPlan
        The launches.
    kernels : callable
        Returns the kernels.
    request : Request
        The product that the launches compute: the requested one, or the product of the transposed matrices.
    seconds : float
        Estimated time.
    """

    name: str
    plan: GemmPlan
    kernels: Callable[[], Sequence[Kernel]]
    request: Request
    seconds: float = 0.0

    def prepare(self, context: Context) -> Launches | None:
        """Compile the kernels; if one of them does not build, warn and return None."""
        kernels = try_compile(self.kernels(), context, self.name, f"Other kernels are used for {self.name}")
        if kernels is None:
            return None
        return Launches(self.name, self.plan, self.request.dtype, self.request.is_transposed, kernels)
