"""Data classes that describe a function and its calls."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pprint import pformat
from typing import Any

import numpy as np
import theano
import theano.tensor as tt

from fuzzing.claims.arguments import Argument, argument
from fuzzing.claims.operations import OPERATIONS

__all__ = ["INPUTS", "SHARED", "Call", "Case", "Graph", "Step"]

#: For each input, which axes are broadcastable. Each call chooses one length for all other axes.
INPUTS: dict[str, tuple[bool, ...]] = {
    "x": (False,),
    "one": (True,),
    "row": (True, False),
    "column": (False, True),
    "square": (False, False),
    "number": (),
    "corner": (True, True),
}
#: For each shared variable, which axes are broadcastable; every function has all of these variables.
SHARED: dict[str, tuple[bool, ...]] = {"state": (False,), "state_of_one": (True,), "state_row": (True, False)}
#: The initial length of the shared variables.
_STATE_LENGTH = 2


@dataclass(frozen=True)
class Step:
    """An operation, the indices of its arguments among the earlier values, and its parameter."""

    operation: str
    arguments: tuple[int, ...]
    param: Any = None


@dataclass(frozen=True)
class Call:
    """The arguments of a call, how often it is repeated, and a shared variable to set before."""

    #: The length of each axis that is not broadcastable.
    length: int
    #: The vector of lengths that some operations take.
    lengths: tuple[int, int]
    #: For each input, a key of `KINDS`: the kind of its argument.
    kinds: tuple[str, ...]
    times: int = 1
    #: A shared variable to set before the call, with the shape of its new value; None to set no variable.
    assigned: tuple[str, tuple[int, ...]] | None = None


@dataclass(frozen=True)
class Case:
    """A description of a function and its calls."""

    #: Names of `INPUTS`.
    inputs: tuple[str, ...]
    steps: tuple[Step, ...]
    #: For each output, the index of its value, and whether it is borrowed.
    outputs: tuple[tuple[int, bool], ...]
    #: For each updated shared variable, its name and the index of its next value.
    updates: tuple[tuple[str, int], ...]
    calls: tuple[Call, ...]
    #: Whether the function has `trust_input`, so that Theano does not check arguments.
    trusted: bool = False

    def script(self) -> str:
        """Return the case as Python code."""
        return pformat(self, width=120, sort_dicts=False)

    def arguments(self, call: Call) -> list[Argument]:
        """Return new arguments for a call; the last one is the vector of lengths."""
        made = [
            argument(kind, _values(number, INPUTS[name], call.length))
            for number, (name, kind) in enumerate(zip(self.inputs, call.kinds, strict=True))
        ]
        return [*made, argument("plain", np.array(call.lengths, "int64"))]


class Graph:
    """A new graph of Theano variables for a case."""

    def __init__(self, case: Case) -> None:
        self.case = case
        self.inputs = [tt.TensorType("float32", INPUTS[name])(name) for name in case.inputs]
        self.lengths = tt.lvector("lengths")
        self.shared = {
            name: theano.shared(_values(number, pattern, _STATE_LENGTH), name, broadcastable=pattern)
            for number, (name, pattern) in enumerate(SHARED.items())
        }
        self.values = [*self.inputs, *self.shared.values()]
        for step in case.steps:
            self.values.append(self.applied(step))

    def applied(self, step: Step) -> Any:
        """Return the variable that a step computes; raise Theano's error if it rejects the types of the arguments."""
        taken = [self.values[index] for index in step.arguments]
        return OPERATIONS[step.operation].build(*taken, self.lengths, step.param)

    def compile(self, mode: Any) -> Any:
        """Return the function."""
        outputs = [theano.Out(self.values[index], borrow=borrow) for index, borrow in self.case.outputs]
        updates = [(self.shared[name], self.values[index]) for name, index in self.case.updates]
        inputs = [*self.inputs, self.lengths]
        with theano.change_flags(on_opt_error="raise"):
            function = theano.function(inputs, outputs, updates=updates, mode=mode, on_unused_input="ignore")
        function.trust_input = self.case.trusted
        return function

    def assign(self, name: str, shape: Sequence[int]) -> np.ndarray:
        """Return a value of the given shape for a shared variable."""
        return np.arange(1, 1 + np.prod(shape, dtype=int)).reshape(shape).astype("float32")


def _values(number: int, pattern: Sequence[bool], length: int) -> np.ndarray:
    shape = tuple(1 if flag else length for flag in pattern)
    size = int(np.prod(shape))
    # The values are small integers, so that sums do not depend on the order of addition.
    return ((np.arange(size) * 3 + number) % 5 - 2).reshape(shape).astype("float32")
