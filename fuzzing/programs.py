"""A random function and the calls of it, as data: it builds graphs, chooses arguments, and is printed to be kept."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import theano
import theano.tensor as tt

from fuzzing.operations import OPERATIONS, Length, Value

__all__ = ["Call", "Graph", "Leaf", "Program", "Step"]

#: How an argument may lie in memory.
LAYOUTS = ("plain", "reversed", "strided")


@dataclass(frozen=True)
class Leaf:
    """An input or a shared variable.

    Parameters
    ----------
    dtype : str
        Of its elements.
    shape : tuple of Length
        Numbers, and names of lengths that a call chooses.
    mutable : bool
        Whether the function may overwrite an argument.
    """

    dtype: str
    shape: tuple[Length, ...]
    mutable: bool = False

    def value(self, sizes: Mapping[str, int], seed: int) -> np.ndarray:
        """Return a value of small integers, always the same for a seed."""
        shape = tuple(sizes.get(length, length) for length in self.shape)
        return np.asarray(np.random.RandomState(seed).randint(-3, 4, shape), self.dtype)


@dataclass(frozen=True)
class Step:
    """An operation: its name, the numbers of its arguments among the values so far, and its parameter."""

    operation: str
    arguments: tuple[int, ...]
    param: Any = None


@dataclass(frozen=True)
class Call:
    """A call of the function, or several with the same arguments.

    Parameters
    ----------
    sizes : tuple of (str, int)
        The lengths of inputs and shared variables; where they change, shared variables get other values first.
    seeds : tuple of int
        For the values of the inputs; inputs with equal seeds, shapes and dtypes are given the same array.
    assigned : tuple of (int, int)
        Shared variables that are given other values before, and the seeds of these.
    layout : str
        How arguments lie in memory.
    times : int
        How often the function is called.
    """

    sizes: tuple[tuple[str, int], ...]
    seeds: tuple[int, ...]
    assigned: tuple[tuple[int, int], ...] = ()
    layout: str = "plain"
    times: int = 1


@dataclass(frozen=True)
class Program:
    """A function and its calls.

    Parameters
    ----------
    inputs, shared : tuple of Leaf
        What the function is given, and what it keeps.
    steps : tuple of Step
        What is computed; values are numbered, inputs and shared variables first.
    outputs : tuple of (int, bool)
        The values that are returned, and whether each is borrowed.
    updates : tuple of (int, int)
        Shared variables and the values that are their next ones.
    calls : tuple of Call
        One after the other.
    """

    inputs: tuple[Leaf, ...]
    shared: tuple[Leaf, ...]
    steps: tuple[Step, ...]
    outputs: tuple[tuple[int, bool], ...]
    updates: tuple[tuple[int, int], ...]
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
            seeds = {place: 100 + place for place in range(len(self.shared))} | seeds
        return {place: self.shared[place].value(sizes, seed) for place, seed in seeds.items()}

    def script(self) -> str:
        """Return the program as Python code."""
        fields = [
            f"    {name}={getattr(self, name)!r},"
            for name in ("inputs", "shared", "steps", "outputs", "updates", "calls")
        ]
        return "\n".join(["Program(", *fields, ")"])


class Graph:
    """Theano's graph of a program, with shared variables of its own.

    Parameters
    ----------
    program : Program
        The calls do not matter.
    target : str
        Where its shared variables are: the host, which Theano calls 'cpu', or the context of a device.
    """

    def __init__(self, program: Program, target: str = "cpu") -> None:
        self.program = program
        sizes = dict(program.calls[0].sizes)
        self.inputs = [
            tt.TensorType(leaf.dtype, [False] * len(leaf.shape))(f"v{place}")
            for place, leaf in enumerate(program.inputs)
        ]
        self.shared = [
            theano.shared(leaf.value(sizes, 100 + place), f"s{place}", target=target)
            for place, leaf in enumerate(program.shared)
        ]
        self.values = [
            Value(var, leaf.shape)
            for var, leaf in zip([*self.inputs, *self.shared], [*program.inputs, *program.shared], strict=True)
        ]
        for step in program.steps:
            self.values.append(applied(step, self.values))

    def compile(self, mode: theano.Mode, mutable: bool = True) -> Any:
        """Return the compiled function, which may overwrite the program's mutable inputs unless that is ruled out."""
        overwritten = [leaf.mutable and mutable for leaf in self.program.inputs]
        inputs = [
            theano.In(var, mutable=may_be, borrow=may_be) for var, may_be in zip(self.inputs, overwritten, strict=True)
        ]
        outputs = [
            theano.Out(self.values[place].var.transfer("cpu"), borrow=borrow) for place, borrow in self.program.outputs
        ]
        updates = [(self.shared[place], self.values[following].var) for place, following in self.program.updates]
        # Theano logs that a rewriter fails, and goes on with the graph as it was.
        with theano.change_flags(on_opt_error="raise"):
            return theano.function(inputs, outputs, updates=updates, mode=mode, on_unused_input="ignore")


def applied(step: Step, values: list[Value]) -> Value:
    """Return the value of a step."""
    operation = OPERATIONS[step.operation]
    arguments = [values[number] for number in step.arguments]
    var = operation.build(*[value.var for value in arguments], step.param)
    return Value(var, operation.shape(*arguments))


def _laid_out(value: np.ndarray, layout: str) -> np.ndarray:
    """Return an array with the same values that lies otherwise in memory."""
    if layout == "reversed" and value.ndim:
        return np.ascontiguousarray(value[::-1])[::-1]
    if layout == "strided" and value.ndim:
        spread = np.zeros((*value.shape[:-1], 2 * value.shape[-1]), value.dtype)
        spread[..., ::2] = value
        return spread[..., ::2]
    return value
