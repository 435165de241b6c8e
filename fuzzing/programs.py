"""Data classes that describe random functions and their calls, and the graphs that are made from them."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import theano
import theano.tensor as tt

from fuzzing.operations import OPERATIONS, Length, Value

__all__ = ["Body", "Call", "Graph", "Leaf", "Program", "Step"]

#: Lengths of test values; they are so large that no operation gets an empty array.
_TEST_SIZES = {"n": 3, "m": 2}

#: The memory layouts of arguments.
LAYOUTS = ("plain", "reversed", "strided")


@dataclass(frozen=True)
class Leaf:
    """An input or a shared variable; each length is a number, or the name of a length that each call sets."""

    dtype: str
    shape: tuple[Length, ...]
    mutable: bool = False

    def value(self, sizes: Mapping[str, int], seed: int) -> np.ndarray:
        """Return an array of small integers; equal seeds give equal arrays."""
        shape = tuple(sizes.get(length, length) for length in self.shape)
        numbers = np.random.RandomState(seed).randint(-3, 4, shape)
        return np.asarray(numbers > 0 if self.dtype == "bool" else numbers).astype(self.dtype)


@dataclass(frozen=True)
class Step:
    """An operation: its name, the indices of its arguments among the earlier values, and its parameter."""

    operation: str
    arguments: tuple[int, ...]
    param: Any = None


@dataclass(frozen=True)
class Body:
    """A function of a program; outputs are pairs of a value's index and `borrow`, and updates are pairs of indices."""

    outputs: tuple[tuple[int, bool], ...]
    updates: tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class Call:
    """One or several calls of a function with the same arguments.

    If the lengths (`sizes`) change, shared variables are set to other values first. Inputs with equal `seeds`, shapes
    and dtypes are the same array. Shared variables in `assigned` are set before the call. An input in `passed_on` gets
    an output of the previous call if dtype and shape match.
    """

    sizes: tuple[tuple[str, int], ...]
    seeds: tuple[int, ...]
    assigned: tuple[tuple[int, int], ...] = ()
    layout: str = "plain"
    times: int = 1
    function: int = 0
    passed_on: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True)
class Program:
    """Functions that have the same inputs and shared variables, and calls of these functions.

    Values are numbered in the order of the inputs, the shared variables and the results of the steps.
    """

    inputs: tuple[Leaf, ...]
    shared: tuple[Leaf, ...]
    steps: tuple[Step, ...]
    functions: tuple[Body, ...]
    calls: tuple[Call, ...]

    def arguments(self, call: Call) -> list[np.ndarray]:
        """Return new arguments for a call."""
        sizes = dict(call.sizes)

        @functools.cache
        def array(seed: int, dtype: str, shape: tuple[Length, ...]) -> np.ndarray:
            return _laid_out(Leaf(dtype, shape).value(sizes, seed), call.layout)

        return [array(seed, leaf.dtype, leaf.shape) for leaf, seed in zip(self.inputs, call.seeds, strict=True)]

    def assignments(self, number: int) -> dict[int, np.ndarray]:
        """Return the values that shared variables get before a call."""
        call = self.calls[number]
        sizes = dict(call.sizes)
        seeds = dict(call.assigned)
        if number == 0 or self.calls[number - 1].sizes != call.sizes:
            seeds = {index: 100 + index for index in range(len(self.shared))} | seeds
        return {index: self.shared[index].value(sizes, seed) for index, seed in seeds.items()}

    def script(self) -> str:
        """Return the program as Python code."""
        fields = [f"    {field.name}={getattr(self, field.name)!r}," for field in dataclasses.fields(self)]
        return "\n".join(["Program(", *fields, ")"])


class Graph:
    """A Theano graph for a program, with its own shared variables.

    The `target` is the location of its shared variables: the host, which Theano calls 'cpu', or the context of a
    device. If `tested` is true, inputs have test values.
    """

    def __init__(self, program: Program, target: str = "cpu", tested: bool = False) -> None:
        self.program = program
        sizes = _TEST_SIZES if tested else dict(program.calls[0].sizes)
        self.inputs = [
            tt.TensorType(leaf.dtype, [False] * len(leaf.shape))(f"v{index}")
            for index, leaf in enumerate(program.inputs)
        ]
        if tested:
            for var, leaf in zip(self.inputs, program.inputs, strict=True):
                var.tag.test_value = leaf.value(sizes, 0)
        self.shared = [
            theano.shared(leaf.value(sizes, 100 + index), f"s{index}", target=target)
            for index, leaf in enumerate(program.shared)
        ]
        self.values = [
            Value(var, leaf.shape)
            for var, leaf in zip([*self.inputs, *self.shared], [*program.inputs, *program.shared], strict=True)
        ]
        for step in program.steps:
            self.values.append(applied(step, self.values))

    def compile(self, number: int, mode: theano.Mode, mutable: bool = True) -> Any:
        """Return a compiled function; if `mutable` is true, it may overwrite the program's mutable inputs."""
        body = self.program.functions[number]
        overwritten = [leaf.mutable and mutable for leaf in self.program.inputs]
        inputs = [
            theano.In(var, mutable=may_be, borrow=may_be) for var, may_be in zip(self.inputs, overwritten, strict=True)
        ]
        outputs = [theano.Out(self.values[index].var.transfer("cpu"), borrow=borrow) for index, borrow in body.outputs]
        updates = [(self.shared[index], self.values[following].var) for index, following in body.updates]
        # Raise the errors of rewriters; by default, Theano only logs them, and continues with the unchanged graph.
        with theano.change_flags(on_opt_error="raise"):
            return theano.function(inputs, outputs, updates=updates, mode=mode, on_unused_input="ignore")


def applied(step: Step, values: list[Value]) -> Value:
    """Return the variable that a step computes."""
    operation = OPERATIONS[step.operation]
    arguments = [values[number] for number in step.arguments]
    var = operation.build(*[value.var for value in arguments], step.param)
    return Value(var, operation.shape(*arguments))


def _laid_out(value: np.ndarray, layout: str) -> np.ndarray:
    """Return an array with equal values and a given memory layout."""
    if layout == "reversed" and value.ndim:
        return np.ascontiguousarray(value[::-1])[::-1]
    if layout == "strided" and value.ndim:
        spread = np.zeros((*value.shape[:-1], 2 * value.shape[-1]), value.dtype)
        spread[..., ::2] = value
        return spread[..., ::2]
    return value
