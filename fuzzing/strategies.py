"""Hypothesis strategies that draw programs."""

from __future__ import annotations

from collections.abc import Callable, Collection

from hypothesis import strategies as st

from fuzzing.operations import OPERATIONS, Length, Value
from fuzzing.programs import LAYOUTS, Call, Graph, Leaf, Program, Step, applied

__all__ = ["BRANCHES", "LOOPS", "programs"]

#: Operations with branches, and those with loops: they compile slowly.
BRANCHES = frozenset({"if_number", "if_device"})
LOOPS = frozenset({"running_total"})

_SHAPES: tuple[tuple[Length, ...], ...] = ((), ("n",), ("n", "m"), (3,), (3, 2))
_INT_DTYPES = ("int32", "int64")
#: Mostly more than nothing, since there every operation has something to do.
_LENGTHS = (2, 3, 1, 0)


@st.composite
def programs(
    draw: Callable,
    most_steps: int = 8,
    most_calls: int = 6,
    without: Collection[str] = (),
) -> Program:
    """Draw a function with a part on the host and a part on the device, and some calls of it.

    Parameters
    ----------
    draw : callable
        Of Hypothesis.
    most_steps, most_calls : int
        So many operations and calls at most.
    without : collection of str
        Operations that are left out.
    """
    ints = st.builds(Leaf, st.sampled_from(_INT_DTYPES), st.sampled_from(_SHAPES), st.booleans())
    floats = st.builds(Leaf, st.just("float32"), st.sampled_from(_SHAPES[1:]), st.booleans())
    inputs = (draw(floats), *draw(st.lists(st.one_of(ints, floats), max_size=2)))
    shared = tuple(
        Leaf(leaf.dtype, leaf.shape) for leaf in draw(st.lists(st.one_of(ints, ints, floats), min_size=1, max_size=3))
    )
    sizes = st.sampled_from([(("n", n), ("m", m)) for n in _LENGTHS for m in _LENGTHS])
    seeds = st.tuples(*[st.integers(0, 2)] * len(inputs))
    assigned = st.lists(
        st.tuples(st.integers(0, len(shared) - 1), st.integers(0, 2)), max_size=1, unique_by=lambda pair: pair[0]
    ).map(tuple)
    usual = draw(sizes)
    call = st.builds(
        Call,
        st.one_of(st.just(usual), st.just(usual), st.just(usual), sizes),
        st.one_of(st.just((0,) * len(inputs)), seeds),
        st.one_of(st.just(()), st.just(()), assigned),
        st.one_of(st.just(LAYOUTS[0]), st.sampled_from(LAYOUTS)),
        st.sampled_from((1, 1, 1, 3)),
    )
    calls = draw(st.lists(call, min_size=3, max_size=most_calls).map(tuple))
    leaves = Program(inputs, shared, (), (), (), calls)
    values = Graph(leaves).values
    steps = []
    names = [name for name in OPERATIONS if name not in without]
    for _ in range(draw(st.integers(1, most_steps))):
        step = draw(_steps(values, names))
        if step is not None:
            steps.append(step)
            values.append(applied(step, values))
    # There is always something that belongs on the device, and the last value is used.
    device = next(place for place, leaf in enumerate(inputs) if leaf.dtype == "float32")
    steps.append(Step("plus", (device,), 1))
    values.append(applied(steps[-1], values))
    last = len(values) - 1
    outputs = draw(st.lists(st.tuples(st.integers(0, last), st.booleans()), min_size=1, max_size=4))
    outputs = (*outputs, (last, False), (max(last - 1, 0), False))
    return Program(inputs, shared, tuple(steps), outputs, draw(_updates(values, len(inputs), len(shared))), calls)


@st.composite
def _steps(draw: Callable, values: list[Value], names: list[str]) -> Step | None:
    """Draw an operation, and arguments for it among the values; None if there are none."""
    name = draw(st.sampled_from(names))
    operation = OPERATIONS[name]
    chosen: list[int] = []
    for fits in operation.slots:
        before = [values[number] for number in chosen]
        candidates = [number for number, value in enumerate(values) if fits(value, *before)]
        if not candidates:
            return None
        # What was made last is the most interesting.
        chosen.append(draw(st.sampled_from(candidates[::-1])))
    return Step(name, tuple(chosen), draw(st.sampled_from(operation.params)))


@st.composite
def _updates(draw: Callable, values: list[Value], inputs: int, shared: int) -> tuple[tuple[int, int], ...]:
    """Draw next values of shared variables: each a value of the same type and lengths, or none."""
    found = []
    for place in range(shared):
        present = values[inputs + place]
        candidates = [number for number, value in enumerate(values) if value.is_like(present)]
        following = draw(st.one_of(st.none(), st.sampled_from(candidates[::-1]), st.sampled_from(candidates)))
        if following is not None:
            found.append((place, following))
    return tuple(found)
