"""Hypothesis strategies that draw functions and their calls (`Case`)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any

from hypothesis import strategies as st

from fuzzing.claims.arguments import KINDS
from fuzzing.claims.cases import INPUTS, SHARED, Call, Case, Graph, Step
from fuzzing.claims.operations import OPERATIONS, SLOW

__all__ = ["cases"]

#: Lengths of axes. A square matrix of the largest length is so large that a simulator reads it without copying it.
_LENGTHS = (2, 3, 1, 0, 130)
_SHAPES = ((1,), (0,), (2,), (3,), (1, 2), (1, 0), (0, 2), (2, 2), ())


@st.composite
def cases(draw: Callable, most_steps: int = 5, most_calls: int = 4, without: Collection[str] = ()) -> Case:
    """Draw a function and some calls of it; some operations may be excluded."""
    inputs = draw(st.lists(st.sampled_from(list(INPUTS)), min_size=1, max_size=3, unique=True).map(tuple))
    names = [name for name in OPERATIONS if name not in without]
    graph = Graph(Case(inputs, (), (), (), ()))
    steps: list[Step] = []
    for _ in range(draw(st.integers(1, most_steps))):
        step = draw(_steps(graph.values, names))
        if step is None:
            continue
        try:
            graph.values.append(graph.applied(step))
        except (TypeError, ValueError, NotImplementedError, IndexError):
            continue  # Theano rejects variables of these types
        steps.append(step)
    last = len(graph.values) - 1
    outputs = draw(st.lists(st.tuples(st.integers(0, last), st.booleans()), max_size=2).map(tuple))
    small = any(step.operation in SLOW for step in steps)
    lengths = st.sampled_from(_LENGTHS[:4] if small else _LENGTHS)
    calls = draw(st.lists(_calls(len(inputs), lengths), min_size=1, max_size=most_calls).map(tuple))
    updates = draw(_updates(graph))
    return Case(
        inputs, tuple(steps), (*outputs, (last, False)), updates, calls, draw(st.sampled_from((False,) * 5 + (True,)))
    )


@st.composite
def _steps(draw: Callable, values: Sequence[Any], names: Sequence[str]) -> Step | None:
    """Draw an operation, and choose its arguments among the values; return None if no values fit."""
    name = draw(st.sampled_from(names))
    operation = OPERATIONS[name]
    chosen: list[int] = []
    for fits in operation.slots:
        before = [values[index] for index in chosen]
        candidates = [index for index, var in enumerate(values) if fits(var, *before)]
        if not candidates:
            return None
        # Hypothesis prefers the first candidate when it shrinks: the latest value, which depends on many steps.
        chosen.append(draw(st.sampled_from(candidates[::-1])))
    return Step(name, tuple(chosen), draw(st.sampled_from(operation.params)))


@st.composite
def _calls(draw: Callable, inputs: int, lengths: st.SearchStrategy) -> Call:
    kinds = st.one_of(st.just("plain"), st.just("plain"), st.sampled_from(list(KINDS)))
    assigned = st.tuples(st.sampled_from(list(SHARED)), st.sampled_from(_SHAPES))
    return Call(
        draw(lengths),
        draw(st.tuples(st.sampled_from((0, 1, 2, 3)), st.sampled_from((0, 1, 2)))),
        draw(st.tuples(*[kinds] * inputs)),
        draw(st.sampled_from((1, 1, 2, 3))),
        draw(st.one_of(st.none(), st.none(), assigned)),
    )


@st.composite
def _updates(draw: Callable, graph: Graph) -> tuple[tuple[str, int], ...]:
    """Draw the updates: each shared variable gets a next value of its own type, or keeps its value."""
    updates = []
    for name, var in graph.shared.items():
        candidates = [index for index, value in enumerate(graph.values) if value.type == var.type]
        following = draw(st.one_of(st.none(), st.sampled_from(candidates[::-1])))
        if following is not None:
            updates.append((name, following))
    return tuple(updates)
