"""Random functions of shared variables, and the modes in which they are compiled."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytensor
import pytensor.tensor as pt
from hypothesis import strategies as st
from pytensor.compile.mode import Mode
from pytensor.graph.basic import Apply
from pytensor.graph.op import Op
from pytensor.raise_op import Assert

import optdb.pytensor
from fuzzing.memory import use_separate_memory
from fuzzing.pytensor.loops import LOOPS, looped
from optdb.runtime.context import Context

__all__ = [
    "DRAWS",
    "LIMIT",
    "MODES",
    "SHAPES",
    "VARIABLES",
    "Failure",
    "OnHost",
    "Spec",
    "compiled",
    "mode_of",
    "specs",
]

#: The number of shared arrays, and the shapes to choose from; all shared arrays of a run have the same shape.
VARIABLES = 3
SHAPES = ((), (3,), (70,), (9, 9), (0, 2), (120, 90))
#: A function that checks its argument raises an error if the sum of the argument is larger than this.
LIMIT = 1e6
#: The modes. "python" is PyTensor's linker `py`; all other modes use optdb's linker. In mode "opencl", calls run in the
#: calling thread where that is faster; in "threads", they never do. The other modes treat the device as one with its
#: own memory, generate kernels for GPUs or small kernels, or merge launches.
MODES = ("opencl", "threads", "own memory", "gpu kernels", "small kernels", "shared values", "merged", "python")
#: An expression is a tuple of an operation's name and its operands.
Expression = tuple[Any, ...]


#: For each distribution, a function that draws an array with the shape of its argument. PyTensor computes the first
#: three distributions from uniform numbers.
DRAWS: dict[str, Callable[..., Any]] = {
    "uniform": lambda x, **options: pt.random.uniform(-pt.abs(x), 1.0, **options),
    "laplace": lambda x, **options: pt.random.laplace(x, 0.5, size=x.shape, **options),
    "categorical": lambda x, **options: pt.random.categorical([0.2, 0.5, 0.3], size=x.shape, **options),
    "normal": lambda x, **options: pt.random.normal(x, **options),
}
#: The operations that take one array.
_OF_ONE = ("tanh", "reversed", "mean", "rolled", "zeroed", "sliced", "sorted", "transposed", "unrolled")
#: Maximum number of elements that "unrolled" computes one by one.
_MOST_UNROLLED = 12


class Failure(Exception):
    """The error that `OnHost` raises if a test sets `fails`."""


class OnHost(Op):
    """An op that adds one on the host, or raises an error if `fails` is set."""

    __props__ = ()
    #: Whether all nodes of this op raise an error.
    fails = False

    def make_node(self, x: Any) -> Apply:
        """Return the node."""
        return Apply(self, [x], [x.type()])

    def perform(self, node: Apply, inputs: Sequence[Any], output_storage: Sequence[list[Any]]) -> None:
        """Compute."""
        if OnHost.fails:
            raise Failure
        output_storage[0][0] = np.asarray(inputs[0] + 1)


@dataclass(frozen=True)
class Spec:
    """A function: its outputs, and for each variable the next value, or None if the function does not update it."""

    outputs: tuple[Expression, ...]
    updates: tuple[Expression | None, ...]
    #: The random variables (keys of `DRAWS`) that the function draws from the shared generator.
    draws: tuple[str, ...]
    #: Whether the function appends to the shared vector `history`, checks its argument, or has a step on the host.
    grows: bool
    checks: bool
    on_host: bool


def _expressions() -> st.SearchStrategy[Expression]:
    variables = st.tuples(st.just("variable"), st.integers(0, VARIABLES - 1))
    leaves = st.one_of(
        variables,
        variables,
        st.just(("argument",)),
        st.tuples(st.just("constant"), st.sampled_from([0.0, 0.5, -1.0])),
    )

    def larger(operands: st.SearchStrategy[Expression]) -> st.SearchStrategy[Expression]:
        return st.one_of(
            st.tuples(st.sampled_from(["add", "subtract", "product"]), operands, operands),
            st.tuples(st.sampled_from(_OF_ONE), operands),
            st.tuples(st.sampled_from(LOOPS), operands),
        )

    return st.recursive(leaves, larger, max_leaves=5)


def specs() -> st.SearchStrategy[Spec]:
    """Return a strategy of functions."""
    rarely = st.integers(0, 4).map(lambda number: number == 0)
    return st.builds(
        Spec,
        st.lists(_expressions(), max_size=2).map(tuple),
        st.tuples(*[st.one_of(st.none(), _expressions(), _expressions())] * VARIABLES),
        st.one_of(
            st.just(()), st.just(()), st.lists(st.sampled_from(sorted(DRAWS)), min_size=1, max_size=3).map(tuple)
        ),
        rarely,
        rarely,
        rarely,
    )


def _built(expression: Expression, variables: Sequence[Any], argument: Any) -> Any:
    kind, *operands = expression
    if kind == "variable":
        return variables[operands[0]]
    if kind == "argument":
        return argument
    if kind == "constant":
        return argument * 0 + operands[0]
    x, *others = [_built(operand, variables, argument) for operand in operands]
    if kind in LOOPS:
        # If there are no steps, Scan with linker `py` returns results with another shape than x.
        return x if 0 in variables[0].type.shape else looped(kind, x)
    match kind:
        case "add":
            return x + others[0]
        case "subtract":
            return x - others[0]
        case "product":
            # Values stay finite.
            return pt.tanh(x) * others[0]
        case "tanh":
            return pt.tanh(x)
        case "mean":
            return x * 0.5 + pt.sum(x) / 16384.0
    if not x.ndim:
        return -x
    match kind:
        case "reversed":
            return x[::-1]
        case "rolled":
            return pt.concatenate([x[1:], x[:1]])
        case "sliced":
            middle = x.shape[0] // 2
            first = pt.inc_subtensor(pt.zeros_like(x)[middle:], x[middle:])
            return pt.set_subtensor(first[:middle], x[:middle] * 0.5)
        case "sorted":
            return pt.sort(x, axis=0)
        case "zeroed":
            return pt.set_subtensor(x[:1], 0.0)
        case "unrolled":
            return _unrolled(x, min(math.prod(variables[0].type.shape), _MOST_UNROLLED))
    return x.T.reshape(x.shape) if x.ndim > 1 else x * 2


def _unrolled(x: Any, steps: int) -> Any:
    """Return an array whose elements are set one after the other; each element depends on all elements before it."""
    elements = x.flatten()
    state, following = elements.sum() * 0, elements
    for step in range(steps):
        state = pt.tanh(0.5 * state + elements[step])
        target = following[steps - 1 - step]
        following = pt.inc_subtensor(target, state) if step % 3 else pt.set_subtensor(target, state)
    return following.reshape(x.shape)


def compiled(spec: Spec, variables: Sequence[Any], rng: Any, history: Any, mode: Any) -> Any:
    """Compile a function of shared variables: arrays, a random generator, and `history`, a vector that grows."""
    x = variables[0].type("x")
    argument = x
    if spec.checks:
        argument = Assert("too large")(x, pt.lt(pt.sum(x), LIMIT))
    if spec.on_host:
        argument = OnHost()(argument)
    following, drawn = rng, []
    for name in spec.draws:
        following, draws = DRAWS[name](argument, rng=following, return_next_rng=True)
        drawn.append(draws)
        argument = argument + 0.5 * draws
    updates = {
        variable: _like(_built(expression, variables, argument), variable)
        for variable, expression in zip(variables, spec.updates, strict=True)
        if expression is not None
    }
    outputs = [_built(expression, variables, argument) for expression in spec.outputs]
    if spec.draws:
        updates[rng] = following
        outputs += drawn
    if spec.grows:
        updates[history] = pt.concatenate([history, history[-1:] + pt.sum(argument)])
    return pytensor.function([x], outputs, updates=updates, mode=mode, on_unused_input="ignore")


def _like(value: Any, variable: Any) -> Any:
    return pt.specify_shape(value, variable.type.shape) if value.type != variable.type else value


@functools.cache
def mode_of(name: str) -> Any:
    """Return the mode of one of `MODES`."""
    if name == "python":
        return Mode("py", "fast_run")
    return Mode(_Linker(name), optdb.pytensor.OPENCL.provided_optimizer)


class _Linker(optdb.pytensor.OpenCLLinker):
    def __init__(self, name: str) -> None:
        super().__init__()
        self.name = name

    @property
    def context(self) -> Context:
        return _context_of(self.name)


@functools.cache
def _context_of(name: str) -> Context:
    context = Context("opencl")
    if name == "threads":
        context.options = replace(context.options, most_work_in_caller=0)
    if name == "own memory":
        use_separate_memory(context)
    if name == "small kernels":
        context.options = replace(context.options, loop_steps=12)
    if name == "shared values":
        context.options = replace(context.options, least_shared_steps=3)
    if name == "gpu kernels":
        context.profile = context.profile.as_kind("gpu")
    return context
