"""Functions with loops over an array; the result of each function has the shape of the array."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytensor
import pytensor.tensor as pt

__all__ = ["LOOPS", "looped"]


def _scan(step: Callable[..., Any], **options: Any) -> Any:
    return pytensor.scan(step, return_updates=False, **options)


def _moved(row: Any, *before: Any) -> Any:
    """Return the next state of a loop; all states are finite."""
    return pt.tanh(row * 0.5 + sum(state * (0.4 + number) for number, state in enumerate(before)))


def _states(x: Any, **options: Any) -> Any:
    return _scan(_moved, sequences=[x], outputs_info=[pt.zeros_like(x[0])], **options)


def _earlier(x: Any) -> Any:
    start = pt.zeros((3, *[x.shape[axis] for axis in range(1, x.ndim)]), x.dtype)
    return _scan(_moved, sequences=[x], outputs_info=[{"initial": start, "taps": [-1, -3]}])


def _neighbours(x: Any) -> Any:
    padded = pt.concatenate([x[:1], x, x[-1:]])
    taps = {"input": padded, "taps": [-1, 0, 1]}
    return _scan(lambda before, now, after: before - now * after, sequences=[taps], outputs_info=[None])


def _swapped(x: Any) -> Any:
    first, second, _ = _scan(
        lambda row, a, b: (b, a * 0.5 + row, row - a),
        sequences=[x],
        outputs_info=[pt.zeros_like(x[0]), pt.ones_like(x[0]), None],
    )
    return first - second


def _counted(x: Any) -> Any:
    counts, _ = _scan(
        lambda row, count, total: (count + pt.cast(pt.gt(row, 0.0), "int64"), total + row * pt.cast(count, row.dtype)),
        sequences=[x],
        outputs_info=[pt.zeros_like(x[0], dtype="int64"), pt.zeros_like(x[0])],
    )
    return pt.cast(counts, x.dtype) * 0.1


def _nested(x: Any) -> Any:
    def outer(row: Any, state: Any) -> Any:
        return _scan(lambda inner, row: _moved(row, inner), outputs_info=[state], non_sequences=[row], n_steps=3)[-1]

    return _scan(outer, sequences=[x], outputs_info=[pt.zeros_like(x[0])])


def _repeated(x: Any, steps: Any) -> Any:
    return _scan(lambda state, x: _moved(x, state), outputs_info=[x], non_sequences=[x], n_steps=steps)


def _varying(x: Any) -> Any:
    steps = 1 + pt.cast(pt.abs(pt.sum(x)) % 3, "int64")
    return _repeated(x, steps)[-1]


def _summed(x: Any) -> Any:
    """Return states, each of which depends on the sum of the previous state's elements."""
    return _scan(
        lambda row, state: pt.tanh(state * 0.5 + pt.sum(state) / 128.0 + row),
        sequences=[x],
        outputs_info=[pt.zeros_like(x[0])],
    )


def _multiplied(x: Any) -> Any:
    """Return states computed with several matrix products, some of which do not depend on a state."""
    if x.ndim != 2:
        return x
    columns = x.shape[1]
    weights = pt.cos(pt.outer(pt.arange(columns), pt.arange(columns))) / columns
    states = _scan(
        lambda block, state, weights: pt.tanh(
            pt.sin(pt.dot(block, weights))[:, ::-1] + block + pt.dot(state, weights) * 0.5
        ),
        sequences=[pt.reshape(x, (3, -1, columns))],
        outputs_info=[pt.zeros((x.shape[0] // 3, columns))],
        non_sequences=[weights],
    )
    return pt.reshape(states, x.shape)


def _gated(x: Any, weights: Any = None) -> Any:
    """Return states that are computed from slices of one product."""
    if x.ndim != 2:
        return x
    columns = x.shape[1]
    if weights is None:
        weights = pt.sin(pt.outer(pt.arange(columns), pt.arange(2 * columns))) / columns
    states = _scan(
        lambda block, state, weights: _gate(block, pt.dot(state, weights), columns),
        sequences=[pt.reshape(x, (3, -1, columns))],
        outputs_info=[pt.zeros((x.shape[0] // 3, columns))],
        non_sequences=[weights],
    )
    return pt.reshape(states, x.shape)


def _gate(block: Any, both: Any, columns: Any) -> Any:
    kept = pt.sigmoid(both[:, :columns])
    return kept * pt.tanh(both[:, columns:] + block) + (1.0 - kept) * pt.sin(block)


def _slope_of_weights(x: Any) -> Any:
    """Return an array plus numbers computed from the gradient of a loop's weights; every step adds to the gradient."""
    if x.ndim != 2:
        return x
    columns = x.shape[1]
    weights = pt.sin(pt.outer(pt.arange(columns), pt.arange(2 * columns))) / columns
    slope = pytensor.grad(pt.sum(pt.tanh(_gated(x, weights))), weights)
    return x * 0.5 + pt.tanh(slope.sum(0)[:columns] - slope[0, columns:])


def _totals(x: Any) -> Any:
    """Return an array plus sums over a loop's steps; the sums are states of which only the last one is used."""
    total, whole, states = _scan(
        lambda row, total, whole, state: (total + pt.sum(row * state), row * state + whole, _moved(row, state)),
        sequences=[x],
        outputs_info=[pt.zeros((), x.dtype), pt.ones_like(x[0]), pt.zeros_like(x[0])],
    )
    return x * 0.5 + pt.tanh(total[-1] - whole[-1]) + states * 0.25


def _slopes(of: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda x: pytensor.grad(pt.sum(pt.tanh(of(x))), x, disconnected_inputs="ignore")


#: Loops over the rows of an array.
_OF_ROWS: dict[str, Callable[[Any], Any]] = {
    "states": _states,
    "backwards": lambda x: _states(x, go_backwards=True),
    "reversed rows": lambda x: _states(x[::-1])[::-1],
    "last state": lambda x: x * 0.5 + _states(x)[-1],
    "last states": lambda x: pt.concatenate([_states(x)[-2:], x])[: x.shape[0]],
    "earlier": _earlier,
    "last earlier": lambda x: x + _earlier(x)[-1],
    "neighbours": _neighbours,
    "swapped": _swapped,
    "counted": _counted,
    "nested": _nested,
    "summed": _summed,
    "multiplied": _multiplied,
    "gated": _gated,
    "totals": _totals,
    "slope of gated": _slopes(_gated),
    "slope of weights": _slope_of_weights,
    "slope of totals": _slopes(_totals),
    "slope of states": _slopes(_states),
    "slope of earlier": _slopes(_earlier),
    "slope of neighbours": _slopes(_neighbours),
    "slope of swapped": _slopes(_swapped),
    "slope of nested": _slopes(_nested),
    "slope of multiplied": _slopes(_multiplied),
    "slope of summed": _slopes(_summed),
    "slope of last": _slopes(lambda x: _earlier(x)[-1]),
}
#: Loops over any array.
_OF_ALL: dict[str, Callable[[Any], Any]] = {
    "repeated": lambda x: _repeated(x, 4)[-1],
    "varying": _varying,
    "slope of repeated": _slopes(lambda x: _repeated(x, 4)[-1]),
}
LOOPS = tuple({**_OF_ROWS, **_OF_ALL})


def looped(kind: str, x: Any) -> Any:
    """Return the result of a loop over `x`; `kind` is one of `LOOPS`. A scalar `x` has no rows to loop over."""
    if kind in _OF_ALL:
        return _OF_ALL[kind](x)
    return _OF_ROWS[kind](x) if x.ndim else x
