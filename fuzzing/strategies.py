"""Hypothesis strategies that draw programs and switches."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Collection, Mapping

import theano
from hypothesis import strategies as st

from fuzzing.operations import OPERATIONS, Length, Value
from fuzzing.programs import LAYOUTS, Body, Call, Graph, Leaf, Program, Step, applied
from fuzzing.switches import Compilation, Process, Surroundings, Switches, exclusion, values_of

__all__ = ["LOOPS", "Example", "chosen_values", "examples", "programs"]

#: Operations that contain loops; they compile slowly.
LOOPS = frozenset({"running_total"})

_SHAPES: tuple[tuple[Length, ...], ...] = ((), ("n",), ("n", "m"), (3,), (3, 2))
_INT_DTYPES = ("int32", "int64", "int32", "int64", "int8", "int16", "uint8", "bool")
#: The dtypes besides floatX.
_OTHER_DTYPES = ("float32", "float64", "float16", "complex64")
#: Lengths of axes; most are not 0, so that most arrays have elements.
_LENGTHS = (2, 3, 1, 0)


#: A random program, and the switches that it is compared under.
Example = tuple[Program, Switches]


@st.composite
def examples(
    draw: Callable,
    process: Process,
    without: Collection[str] = (),
    only: Mapping[str, Collection[str]] | None = None,
) -> Example:
    """Draw a program and its switches; `only` maps a switch to the values that it may have."""
    only = only or {}
    surroundings = Surroundings(**draw(_values(Surroundings, only)))
    given = dataclasses.asdict(process)
    first, second = (Compilation(**draw(_values(Compilation, only, given))) for _ in range(2))
    program = draw(programs(without=without, float_dtype=surroundings.float_dtype))
    return program, Switches(process, surroundings, first, second)


@st.composite
def _values(
    draw: Callable, part: type, only: Mapping[str, Collection[str]], given: Mapping[str, str] | None = None
) -> dict[str, str]:
    """Draw values for the switches of a dataclass; they must not exclude each other or `given` values."""
    found: dict[str, str] = {}
    switches = chosen_values(part, only)
    for name, values in switches.items():
        possible = [
            value
            for value in values
            if exclusion((name, value), {**(given or {}), **found}) is None
            and all(
                other == name or any(exclusion((name, value), [(other, choice)]) is None for choice in choices)
                for other, choices in switches.items()
            )
        ]
        found[name] = draw(st.sampled_from(possible))
    return found


def chosen_values(part: type, only: Mapping[str, Collection[str]]) -> dict[str, tuple[str, ...]]:
    """Return the switches of a dataclass such as `Process`, and the values that may be drawn for each switch."""
    return {
        name: tuple(value for value in values if value in only.get(name, values))
        for name, values in values_of(part).items()
    }


@st.composite
def programs(
    draw: Callable,
    most_steps: int = 8,
    most_calls: int = 6,
    without: Collection[str] = (),
    float_dtype: str = "float32",
) -> Program:
    """Draw two functions and some calls of them; the functions compute both on the host and on the device."""
    ints = st.builds(Leaf, st.sampled_from(_INT_DTYPES), st.sampled_from(_SHAPES), st.booleans())
    usual_floats = st.builds(Leaf, st.just(float_dtype), st.sampled_from(_SHAPES[1:]), st.booleans())
    others = st.builds(Leaf, st.sampled_from(_OTHER_DTYPES), st.sampled_from(_SHAPES), st.booleans())
    floats = st.one_of(usual_floats, usual_floats, others)
    inputs = (draw(usual_floats), *draw(st.lists(st.one_of(ints, floats), max_size=2)))
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
        st.sampled_from((0, 1)),
    )
    calls = draw(st.lists(call, min_size=3, max_size=most_calls).map(tuple))
    with theano.change_flags(floatX=float_dtype):
        values = Graph(Program(inputs, shared, (), (), calls)).values
        steps = []
        names = [name for name in OPERATIONS if name not in without]
        for _ in range(draw(st.integers(1, most_steps))):
            step = draw(_steps(values, names))
            if step is not None:
                steps.append(step)
                values.append(applied(step, values))
        # The last step always computes an output on the device.
        device = next(index for index, leaf in enumerate(inputs) if leaf.dtype == float_dtype)
        steps.append(Step("plus", (device,), 1))
        values.append(applied(steps[-1], values))
    functions = tuple(draw(_bodies(values, len(inputs), len(shared))) for _ in range(2))
    passing = (calls[0], *(draw(_passing_on(values, inputs, functions, *pair)) for pair in itertools.pairwise(calls)))
    return Program(inputs, shared, tuple(steps), functions, passing)


@st.composite
def _passing_on(
    draw: Callable, values: list[Value], inputs: tuple[Leaf, ...], functions: tuple[Body, ...], before: Call, call: Call
) -> Call:
    """Draw which result of the previous call is passed to a call as an argument, if any; its type must match."""
    possible = [
        (index, output)
        for index, leaf in enumerate(inputs)
        for output, (number, _) in enumerate(functions[before.function].outputs)
        if (values[number].var.dtype, values[number].shape) == (leaf.dtype, leaf.shape)
    ]
    if not possible:
        return call
    chosen = draw(st.one_of(st.just(()), st.tuples(st.sampled_from(possible))))
    return dataclasses.replace(call, passed_on=chosen)


@st.composite
def _bodies(draw: Callable, values: list[Value], inputs: int, shared: int) -> Body:
    """Draw the results and updates of a function."""
    last = len(values) - 1
    outputs = draw(st.lists(st.tuples(st.integers(0, last), st.booleans()), min_size=1, max_size=4))
    outputs = (*outputs, (last, False), (max(last - 1, 0), False))
    return Body(outputs, draw(_updates(values, inputs, shared)))


@st.composite
def _steps(draw: Callable, values: list[Value], names: list[str]) -> Step | None:
    """Draw an operation, and choose its arguments among the values; return None if no values fit."""
    possible = [name for name in names if any(map(OPERATIONS[name].slots[0], values))]
    name = draw(st.sampled_from(possible))
    operation = OPERATIONS[name]
    chosen: list[int] = []
    for fits in operation.slots:
        before = [values[number] for number in chosen]
        candidates = [number for number, value in enumerate(values) if fits(value, *before)]
        if not candidates:
            return None
        # Hypothesis prefers the first candidate when it shrinks: the latest value, which depends on many steps.
        chosen.append(draw(st.sampled_from(candidates[::-1])))
    return Step(name, tuple(chosen), draw(st.sampled_from(operation.params)))


def _writes_parts(value: Value) -> bool:
    return value.var.owner is not None and "IncSubtensor" in type(value.var.owner.op).__name__


@st.composite
def _updates(draw: Callable, values: list[Value], inputs: int, shared: int) -> tuple[tuple[int, int], ...]:
    """Draw the updates: each shared variable gets a next value of its own type and shape, or keeps its value."""
    found = []
    for index in range(shared):
        present = values[inputs + index]
        candidates = [number for number, value in enumerate(values) if value.is_like(present)]
        # Draw these values more often: a device has to notice nodes that work in place on the host.
        in_place = [number for number in candidates if _writes_parts(values[number])]
        following = draw(
            st.one_of(
                st.none(),
                st.sampled_from(candidates[::-1]),
                st.sampled_from(candidates),
                st.sampled_from(in_place or candidates),
            )
        )
        if following is not None:
            found.append((index, following))
    return tuple(found)
