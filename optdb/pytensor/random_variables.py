"""Draws random variables from generators that have the same states as in PyTensor.

In each call, a host step advances a generator and sends its previous state to the device, which draws numbers from the
same stream. If a distribution consumes a varying number of random numbers, the host draws its values, unless the mode
allows different values.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from pytensor.graph.basic import Apply
from pytensor.tensor.random.basic import BernoulliRV, CategoricalRV, MvNormalRV, UniformRV
from pytensor.tensor.random.op import RandomVariable
from pytensor.tensor.type_other import NoneTypeT

from optdb.codegen.linalg.operations import Cholesky
from optdb.codegen.random_numbers import FirstOutcomes, PCG64Numbers, advanced, state_words
from optdb.device.expressions import applied, broadcast, cast, reshaped, transposed
from optdb.device.functions.host_parts import HostValue, Mismatch, Value
from optdb.device.functions.tracer import FunctionTracer
from optdb.device.tensors import Constant, Tensor, spec_of
from optdb.pytensor import host_groups
from optdb.pytensor.dispatch import OnHost, described, tensors_of
from optdb.pytensor.distributions import FORMULAS, OTHER_FORMULAS, Formula, Term, normal_quantile
from optdb.pytensor.linalg import batched_product, product
from optdb.pytensor.operations import computed
from optdb.pytensor.tracing import GraphTrace

#: The maximum number of categories, since the device adds up the probabilities again for each element that it draws.
_MOST_OUTCOMES = 1000


class GeneratorStep:
    """Advances a PCG64 generator by a number of steps. Returns the new generator, and the state before the steps."""

    def __init__(self, steps: int) -> None:
        self._steps = steps

    def __str__(self) -> str:
        return f"advancing a random generator by {self._steps:,} steps"

    def __call__(self, values: list[Any]) -> list[Any]:
        (generator,) = values
        bits = _bits_of(generator)
        if bits is None:
            raise Mismatch
        current = bits.state
        state, increment = current["state"]["state"], current["state"]["inc"]
        following = np.random.PCG64(copy.deepcopy(bits.seed_seq))
        following.state = current | {"state": {"state": advanced(state, increment, self._steps), "inc": increment}}
        return [np.random.Generator(following), state_words(state, increment)]


def _bits_of(generator: Any) -> Any:
    """Return a random generator's bit generator if it is PCG64, else None."""
    bits = generator.bit_generator if isinstance(generator, np.random.Generator) else None
    return bits if type(bits) is np.random.PCG64 else None


class _Draws:
    """The random numbers that a node draws; raises OnHost if the device cannot continue the generator's stream."""

    def __init__(self, node: Apply, parameters: Sequence[Tensor], trace: GraphTrace) -> None:
        op, rng, size = node.op, node.inputs[0], node.inputs[1]
        if not isinstance(trace.tracer, FunctionTracer):
            raise OnHost("random variables in a step of a loop are drawn on the host")
        self._tracer, self._generator = trace.tracer, trace.value(rng)
        if not isinstance(self._generator, HostValue) or self._generator.number < 0:
            raise OnHost("the generator is a constant")
        generator = trace.tracer.host_value(self._generator)
        if _bits_of(generator) is None:
            raise OnHost(f"{generator} is no generator of PCG64, whose stream can be entered at any number")
        reason = trace.tracer.context.unsupported_reason("uint64")
        if reason is not None:
            raise OnHost(reason)
        batch = [x.shape[: x.ndim - core] for x, core in zip(parameters, op.ndims_params, strict=True)]
        #: The shape of the draws, without the axes of a single draw.
        self.shape = np.broadcast_shapes(*batch)
        if not isinstance(size.type, NoneTypeT):
            wanted = tuple(map(int, trace.concrete(size)))
            if min(wanted, default=0) < 0 or not _fits(self.shape, wanted):
                raise OnHost("the host raises the error for this size")
            self.shape = wanted

    def numbers(self, dtype: str, is_open: bool = False, core: Sequence[int] = ()) -> tuple[Value, Tensor]:
        """Return the next generator, and a uniform number for each element; `core` is the shape of a single draw."""
        shape = (*self.shape, *core)
        size = math.prod(shape)
        following, state = self._tracer.on_host(GeneratorStep(size), [self._generator])
        numbers = computed(PCG64Numbers, [state, size], (size,), dtype, dtype, is_open)
        return following, reshaped(numbers, shape)


def _fits(shape: tuple[int, ...], size: tuple[int, ...]) -> bool:
    """Return whether a shape broadcasts to a given size."""
    lengths = zip(shape[::-1], size[::-1])
    return len(shape) <= len(size) and all(length in (1, wanted) for length, wanted in lengths)


@described.register(RandomVariable)
def _random(op: RandomVariable, node: Apply, inputs: Sequence[Value], trace: GraphTrace) -> list[Value]:
    formula, is_open = _formula_of(op, trace)
    parameters = tensors_of(inputs[2:])
    _check(formula, parameters)
    draws = _Draws(node, parameters, trace)
    dtype = node.outputs[1].type.dtype
    if type(op) is UniformRV and dtype == "float32" and _are(parameters, [0.0, 1.0]):
        return [*draws.numbers("float32")]
    work = "float32" if is_open and dtype in ("float16", "float32") else "float64"
    reason = trace.tracer.context.unsupported_reason(work)
    if reason is not None:
        raise OnHost(f"{op.name} is drawn in {work}, and {reason}")
    following, u = draws.numbers(work, is_open)
    result = formula.draw(*[Term(cast(x, work)) for x in (u, *parameters)])
    return [following, cast(result.tensor, dtype)]


def _formula_of(op: RandomVariable, trace: GraphTrace) -> tuple[Formula, bool]:
    """Return a random variable's formula, and whether it takes numbers in the open interval (0, 1)."""
    by_numba = next(host_groups.linkers()) == "numba"
    if type(op) in FORMULAS and (type(op) is not BernoulliRV or by_numba or trace.draws_on_device):
        return FORMULAS[type(op)], False
    if type(op) in OTHER_FORMULAS and trace.draws_on_device:
        return OTHER_FORMULAS[type(op)], True
    if type(op) is BernoulliRV or type(op) in OTHER_FORMULAS:
        raise _on_host(op)
    raise OnHost(f"{type(op).__name__} is not among the random variables of the device")


def _on_host(op: RandomVariable) -> OnHost:
    return OnHost(
        f"PyTensor takes a varying number of random numbers for {op.name}; opencl_mode(random='device') draws other "
        "values on the device"
    )


def _check(formula: Formula, parameters: Sequence[Tensor]) -> None:
    """Raise OnHost if parameters are known to be invalid, or if only the host can check them."""
    if all(isinstance(x, Constant) for x in parameters):
        values = [np.asarray(x.value, "float64") for x in parameters if isinstance(x, Constant)]
        with np.errstate(all="ignore"):
            if not formula.is_valid(*values).all():
                raise OnHost("the host decides what to do with these parameters")
    elif formula.is_checked:
        raise OnHost("the host checks these parameters")


def _are(tensors: Sequence[Tensor], numbers: Sequence[float]) -> bool:
    """Return whether each tensor is a constant whose elements all equal the corresponding number."""
    pairs = zip(tensors, numbers, strict=True)
    return all(isinstance(x, Constant) and bool((x.value == number).all()) for x, number in pairs)


@described.register(CategoricalRV)
def _categorical(op: CategoricalRV, node: Apply, inputs: Sequence[Value], trace: GraphTrace) -> list[Value]:
    (p,) = tensors_of(inputs[2:])
    draws = _Draws(node, [p], trace)
    outcomes, dtype = p.shape[-1], node.outputs[1].type.dtype
    reason = trace.tracer.context.unsupported_reason("float64")
    if p.dtype not in ("float32", "float64"):
        reason = f"the host adds up probabilities of {p.dtype}"
    if not 0 < outcomes <= _MOST_OUTCOMES:
        reason = f"the host searches {outcomes:,} outcomes by bisection"
    if reason is not None:
        raise OnHost(reason)
    following, u = draws.numbers("float64")
    if math.prod(p.shape[:-1]) != 1:
        p = broadcast(p, (*draws.shape, outcomes))
    rows = reshaped(p, (p.size // outcomes, outcomes))
    flat = reshaped(u, (u.size,))
    found = computed(FirstOutcomes, [rows, flat], (u.size,), dtype, spec_of(rows), spec_of(flat), dtype)
    return [following, reshaped(found, draws.shape)]


@described.register(MvNormalRV)
def _multivariate_normal(op: MvNormalRV, node: Apply, inputs: Sequence[Value], trace: GraphTrace) -> list[Value]:
    if not trace.draws_on_device:
        raise _on_host(op)
    dtype = node.outputs[1].type.dtype
    mean, covariance = (cast(x, dtype) for x in tensors_of(inputs[2:]))
    draws = _Draws(node, [mean, covariance], trace)
    length = mean.shape[-1]
    if op.method != "cholesky" or dtype not in ("float32", "float64") or not covariance.size:
        raise OnHost("the device draws in float32 and float64, by Cholesky's factors alone")
    if covariance.shape[-2:] != (length, length):
        raise OnHost("the host raises the error for these shapes")
    factor = computed(Cholesky, [covariance], covariance.shape, dtype, spec_of(covariance), True)
    is_number = applied("Invert", "bool", applied("IsNan", "bool", factor))
    trace.tracer.check(is_number, lambda: np.linalg.LinAlgError("Matrix is not positive definite"))
    following, u = draws.numbers(dtype, is_open=True, core=(length,))
    standard = reshaped(normal_quantile(Term(u)).tensor, (math.prod(draws.shape), length))
    if math.prod(covariance.shape[:-2]) == 1:
        parts = product(standard, transposed(reshaped(factor, (length, length)), [1, 0]))
    else:
        factors = reshaped(broadcast(factor, (*draws.shape, length, length)), (standard.shape[0], length, length))
        parts = batched_product(factors, reshaped(standard, (*standard.shape, 1)), trace.context)
    return [following, applied("Add", dtype, mean, reshaped(parts, u.shape))]
