"""A scalar op made of others: steps that are applied one after the other.

Loop fusion makes programs. A Composite of the host holds the same steps as a graph, which it
optimizes, clones and compares by its C code; a Program is a tuple.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

from optdb.host.api.graph import Constant, io_toposort
from optdb.host.api.scalars import (
    GE,
    GT,
    LE,
    LT,
    Add,
    Composite,
    Maximum,
    Minimum,
    Mul,
    Pow,
    ScalarOp,
    Sub,
    Switch,
    TrueDiv,
    scalar_node,
    scalar_type,
)


@dataclass(frozen=True)
class Number:
    """A constant of a program, to the last bit."""

    dtype: str
    #: The bytes of its value: so NaN equals itself, and -0 does not equal 0.
    raw: bytes

    @classmethod
    def of(cls, value: Any, dtype: str) -> Number:
        """Return the constant for a value."""
        return cls(dtype, np.asarray(value, dtype).tobytes())

    @property
    def value(self) -> Any:
        """The value, as a number of NumPy's."""
        return np.frombuffer(self.raw, self.dtype)[0]

    @property
    def may_be_argument(self) -> bool:
        """Whether a kernel may take it as an argument: a real number that no compiler simplifies anything with."""
        return self.dtype.startswith("float") and abs(self.value) not in _COMMON


#: Products, quotients and powers with these are simplified by compilers.
_COMMON = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0)
#: Ops that compute as quickly with a number that is not known before.
_TAKING_ARGUMENTS = frozenset({Add, Mul, Sub, TrueDiv, Pow, Maximum, Minimum, Switch, LT, LE, GT, GE})

#: The index of a value, which counts inputs first, then the results of steps; or a constant.
Slot = int | Number
#: An op of one output, and its inputs.
Application = tuple[Any, tuple[Slot, ...]]
#: What stands for a value.
Value = TypeVar("Value")


class Program(ScalarOp):
    """Scalar ops, one after the other.

    Parameters
    ----------
    dtypes : tuple of str
        Of the inputs.
    steps : tuple of (ScalarOp, tuple of slots)
        The applications; no step is a Program or a Composite.
    results : tuple of slots
        Which values are the outputs.
    takes_arguments : bool
        Whether kernels take its numbers as arguments, see `with_arguments`. Programs that differ in it are equal: they
        compute the same.
    """

    def __init__(
        self,
        dtypes: tuple[str, ...],
        steps: tuple[Application, ...],
        results: tuple[Slot, ...],
        takes_arguments: bool = False,
    ) -> None:
        super().__init__(None, None)
        self.takes_arguments = takes_arguments
        self.dtypes = dtypes
        self.steps = steps
        self.results = results
        self.nin = len(dtypes)
        self.nout = len(results)
        self._out_dtypes = self.evaluate(dtypes, _output_dtypes, lambda number: number.dtype)
        self._key = (dtypes, tuple([(described(op), slots) for op, slots in steps]), results)
        self._hash = hash(self._key)

    def __str__(self) -> str:
        counts = Counter(type(op).__name__.lower() for op, _ in self.steps)
        names = [name if n == 1 else f"{n} {name}" for name, n in counts.items()]
        return f"Program{{{', '.join(names)}}}"

    __repr__ = __str__

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if type(other) is not Program or self._hash != other._hash:
            return False
        return self._key == other._key

    def __hash__(self) -> int:
        return self._hash

    def __reduce__(self) -> tuple[Any, ...]:
        # Hashes of strings differ between processes.
        return Program, (self.dtypes, self.steps, self.results, self.takes_arguments)

    def evaluate(
        self,
        inputs: Iterable[Value],
        apply: Callable[[Any, Sequence[Value]], Sequence[Value]],
        constant: Callable[[Number], Value],
    ) -> list[Value]:
        """Interpret the program over values of any kind, and return the results.

        `apply` returns the results of a step for its op and inputs, `constant` the value of a constant.
        """
        values = list(inputs)

        def value(slot: Slot) -> Value:
            return constant(slot) if isinstance(slot, Number) else values[slot]

        for op, slots in self.steps:
            values += apply(op, [value(slot) for slot in slots])
        return [value(slot) for slot in self.results]

    def with_arguments(self) -> tuple[Program, tuple[Number, ...]]:
        """Return the program with its factors, terms, bounds and exponents as further inputs, and these numbers.

        Programs that differ in nothing else become equal, and one kernel computes them; but each argument takes a
        launch some 50 ns. Numbers stay in the program
        where a compiler may make use of them: small ones such as 1 and 2, integers, and the operands of other ops.
        """
        arguments: dict[Number, int] = {}
        count = len(self.dtypes)
        for op, slots in self.steps:
            if type(op) in _TAKING_ARGUMENTS:
                for number in slots:
                    if isinstance(number, Number) and number.may_be_argument:
                        arguments.setdefault(number, count + len(arguments))
        if not arguments:
            return self, ()

        def moved(slot: Slot, takes: bool) -> Slot:
            if isinstance(slot, Number):
                return arguments.get(slot, slot) if takes else slot
            return slot if slot < count else slot + len(arguments)

        steps = [
            (op, tuple([moved(slot, type(op) in _TAKING_ARGUMENTS) for slot in slots])) for op, slots in self.steps
        ]
        dtypes = (*self.dtypes, *[number.dtype for number in arguments])
        results = tuple([moved(slot, takes=False) for slot in self.results])
        return Program(dtypes, tuple(steps), results), tuple(arguments)

    def output_types(self, types: Sequence[Any]) -> list[Any]:
        """Return the types of the outputs.

        Raises
        ------
        TypeError
            If the inputs are of other dtypes than those it was made for.
        """
        dtypes = tuple(kind.dtype for kind in types)
        if dtypes != self.dtypes:
            raise TypeError(f"{self} was made for {self.dtypes}, and is given {dtypes}")
        return [scalar_type(dtype) for dtype in self._out_dtypes]

    def make_new_inplace(self, preference: Any = None, name: str | None = None) -> Program:
        """Return the program itself: the elementwise op holds the in-place pattern."""
        return self

    def impl(self, *inputs: Any) -> Any:
        """Compute one element, in Python."""
        results = self.evaluate(inputs, lambda op, values: [op.impl(*values)], lambda number: number.value)
        return results[0] if len(results) == 1 else results


def described(op: Any) -> tuple[Any, ...]:
    """Return a key of a scalar op: the host compares as equal some ops that differ in an open or closed end."""
    plain = [(name, value) for name, value in vars(op).items() if isinstance(value, bool | int | float | str)]
    return op, tuple(sorted(pair for pair in plain if pair[0] != "name"))


def _output_dtypes(op: Any, dtypes: Sequence[str]) -> list[str]:
    return [output_dtype(op, tuple(dtypes))]


@functools.lru_cache(maxsize=10_000)
def output_dtype(op: Any, dtypes: tuple[str, ...]) -> str:
    """Return the dtype of the output of a scalar op that has one, cached: a graph repeats few of them."""
    (dtype,) = [out.type.dtype for out in scalar_node(op, dtypes).outputs]
    return dtype


class ProgramBuilder:
    """Builds a program, with common-subexpression elimination; the first slots are the inputs."""

    def __init__(self, dtypes: Sequence[str]) -> None:
        self._dtypes = tuple(dtypes)
        self._steps: list[Application] = []
        self._slots: dict[Any, int] = {}

    def apply(self, op: Any, slots: Sequence[Slot]) -> list[Slot]:
        """Apply an op, and return the slots of its outputs; a Program or a Composite is inlined."""
        if isinstance(op, Program):
            return op.evaluate(slots, self.apply, lambda number: number)
        if isinstance(op, Composite):
            return self._spell_graph(op, slots)
        key = (described(op), tuple(slots))
        if key not in self._slots:
            self._slots[key] = len(self._dtypes) + len(self._steps)
            self._steps.append((op, tuple(slots)))
        return [self._slots[key]]

    def build(self, results: Sequence[Slot]) -> Program:
        """Return the program."""
        return Program(self._dtypes, tuple(self._steps), tuple(results))

    def _spell_graph(self, op: Any, slots: Sequence[Slot]) -> list[Slot]:
        slot_by_var = dict(zip(op.inputs, slots, strict=True))

        def slot_of(var: Any) -> Slot:
            if var not in slot_by_var and isinstance(var, Constant):
                return Number.of(var.data, var.type.dtype)
            return slot_by_var[var]

        for node in io_toposort(op.inputs, op.outputs):
            slot_by_var.update(zip(node.outputs, self.apply(node.op, [slot_of(v) for v in node.inputs]), strict=True))
        return [slot_of(var) for var in op.outputs]
