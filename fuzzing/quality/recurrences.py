"""Random unrolled recurrences, whose states are sums or products of all earlier steps.

When Theano simplifies a part of a sum, it rewrites the whole sum and flattens its inner sums. To make Theano do so,
some steps have terms that cancel, or gates that Theano rewrites as sigmoids. Ops that fusion cannot include,
elementwise ops and other states depend on the states. A loss and its gradient contribute more sums with as many terms.
"""

from __future__ import annotations

import random
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import numpy as np
import theano
import theano.tensor as tt

from fuzzing.quality.drawn import Drawn

__all__ = ["draw"]

WIDTH = 3
MAX_STEPS = 9


def draw(seed: int) -> Drawn:
    """Draw a recurrence from a seed; equal seeds give equal recurrences."""
    return _Recurrence(random.Random(f"recurrence {seed}")).drawn()


class _Recurrence:
    """Builds a random recurrence from its input, its weights and the kinds of its steps."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.numbers = np.random.RandomState(rng.randrange(2**31))
        self.x = tt.tensor3("x")
        self.weights = [self._weight(WIDTH, WIDTH) for _ in range(2)]
        self.bias = self._weight(WIDTH)
        self.names = [rng.choice(list(_STEPS)) for _ in range(rng.randint(1, 3))]
        self.use = rng.choice(list(_USES))

    def _weight(self, *shape: int) -> Any:
        return theano.shared(self.numbers.uniform(-0.3, 0.3, shape).astype(theano.config.floatX))

    def drawn(self) -> Drawn:
        steps = self.rng.randint(3, MAX_STEPS)
        state, outputs = self.x[0], []
        for t in range(steps):
            term = self._term(t, state)
            for name in self.names:
                state = _STEPS[name](state, term, self)
            outputs.append(_USES[self.use](state, self))
        chosen = outputs if self.rng.random() < 0.5 else outputs[-1:]
        words = [f"{steps} steps", *self.names, self.use]
        updates: OrderedDict[Any, Any] = OrderedDict()
        if self.rng.random() < 0.6:
            loss = sum(tt.sqr(output).sum() for output in chosen)
            trained = [*self.weights, self.bias]
            gradients = theano.grad(loss, trained, disconnected_inputs="ignore")
            updates.update((w, w - 0.01 * gradient) for w, gradient in zip(trained, gradients))
            words.append("trained")
        return Drawn(" ".join(words), [self.x], chosen, updates)

    def _term(self, t: int, state: Any) -> Any:
        """Return the addend of a step; it depends on the step's input and, in some cases, on the previous state."""
        drive = tt.dot(self.x[t], self.weights[0]) + self.bias
        return drive + tt.dot(state, self.weights[1]) if self.rng.random() < 0.5 else drive


def _gate(x: Any) -> Any:
    return 1 / (1 + tt.exp(-x))


def _gated(state: Any, term: Any, _: _Recurrence) -> Any:
    gate = _gate(term)
    return (1 - gate) * state + gate * tt.tanh(term)


_STEPS: dict[str, Callable[[Any, Any, _Recurrence], Any]] = {
    "sum": lambda s, a, _: s + a,
    "sum of cancelled terms": lambda s, a, _: s + a + tt.sin(a) - a,
    "difference": lambda s, a, _: s - a + tt.sin(a) + a,
    "sum with a number": lambda s, a, _: s + a + 0.5,
    "product": lambda s, a, _: s * a,
    "product of cancelled factors": lambda s, a, _: s * a * tt.sin(a) / a,
    "quotient": lambda s, a, _: s / (2 + tt.sin(a)),
    "momentum": lambda s, a, _: 0.9 * s + a,
    "gates": _gated,
    "sum with a row": lambda s, a, net: s + a + net.bias,
    "skip": lambda s, a, _: s + tt.tanh(s + a) - a,
}

_USES: dict[str, Callable[[Any, _Recurrence], Any]] = {
    "as it is": lambda s, _: s,
    "tanh": lambda s, _: tt.tanh(s),
    "row sums": lambda s, _: s.sum(axis=1),
    "products": lambda s, net: tt.dot(s, net.weights[0]),
    "rows": lambda s, _: s[1:],
}
