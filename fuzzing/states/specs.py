"""Descriptions of random functions, and strategies that draw them.

A description (`Spec`) does not depend on the kinds of the shared variables. `Spec.fitted` removes the parts that do not
match the kinds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from hypothesis import strategies as st

from fuzzing.states.expressions import OPERATIONS, Kind

__all__ = ["COUNT", "DTYPES", "Expression", "Output", "Spec", "kinds", "shapes_of", "specs"]

#: The number of shared variables.
COUNT = 3
DTYPES = (
    *("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
    *("float16", "float32", "float64", "complex64"),
)
#: The number of the leaf that is the function's argument; other leaves have the number of a shared variable.
ARGUMENT = -1


@dataclass(frozen=True)
class Expression:
    """Operations that are applied to a leaf: to the argument, or to a shared variable, which is given by its number."""

    leaf: int
    operations: tuple[str, ...] = ()

    def fitted(self, kinds: Sequence[Kind], argument: int) -> Expression:
        """Return the expression without the operations that do not accept values of the leaf's kind."""
        kind = kinds[argument if self.leaf == ARGUMENT else self.leaf]
        names = (name for name in self.operations if OPERATIONS[name].admits(kind))
        return replace(
            self, operations=tuple(name for name in names if name != "with_argument" or kind == kinds[argument])
        )


@dataclass(frozen=True)
class Output:
    """An output: its expression, and how the result is returned."""

    expression: Expression
    borrow: bool = False
    #: Whether the function returns twice the result in float32, which the device can compute.
    as_float: bool = False


@dataclass(frozen=True)
class Spec:
    """A function that takes an argument and an index.

    `updates` has pairs of a shared variable's number and its next value, and `givens` has pairs of the numbers of a
    shared variable and its replacement. The argument has the same kind as the shared variable with the number
    `argument`.
    """

    outputs: tuple[Output, ...]
    updates: tuple[tuple[int, Expression], ...] = ()
    givens: tuple[tuple[int, int], ...] = ()
    argument: int = 0
    mutable: bool = False
    default_updates: bool = True

    def fitted(self, kinds: Sequence[Kind]) -> Spec:
        """Return the spec without the parts that do not match the kinds of the shared variables."""
        givens = tuple((k, by) for k, by in self.givens if k != by and kinds[k] == kinds[by])
        replaced = dict(givens)
        updates = []
        for k, expression in dict(self.updates).items():
            if k in replaced:
                continue
            leaf = expression.leaf
            kind = kinds[self.argument if leaf == ARGUMENT else leaf]
            source = expression if kind == kinds[k] else replace(expression, leaf=k)
            updates.append((k, source.fitted(kinds, self.argument)))
        outputs = tuple(
            replace(
                output,
                expression=output.expression.fitted(kinds, self.argument),
                as_float=output.as_float and not self._kind_of(output, kinds).dtype.startswith("complex"),
            )
            for output in self.outputs
        )
        return replace(self, givens=givens, updates=tuple(updates), outputs=outputs)

    def _kind_of(self, output: Output, kinds: Sequence[Kind]) -> Kind:
        leaf = output.expression.leaf
        return kinds[self.argument if leaf == ARGUMENT else leaf]

    def leaf(self, expression: Expression) -> int:
        """Return the leaf of an expression, or the variable that replaces it in `givens`."""
        return dict(self.givens).get(expression.leaf, expression.leaf)

    def operations(self) -> set[str]:
        """Return the names of all operations."""
        expressions = [*(output.expression for output in self.outputs), *(source for _, source in self.updates)]
        return {name for expression in expressions for name in expression.operations}

    def used(self) -> set[int]:
        """Return the numbers of the shared variables that the function uses in expressions, updates or givens."""
        expressions = [*(output.expression for output in self.outputs), *(source for _, source in self.updates)]
        leaves = {self.leaf(expression) for expression in expressions} - {ARGUMENT}
        return leaves | {k for k, _ in self.updates} | {by for _, by in self.givens}

    def swapped(self, old: int, new: int) -> Spec:
        """Return the spec with one shared variable replaced by another."""

        def swap(k: int) -> int:
            return new if k == old else k

        def swapped(expression: Expression) -> Expression:
            return replace(expression, leaf=swap(self.leaf(expression)))

        return replace(
            self,
            outputs=tuple(replace(output, expression=swapped(output.expression)) for output in self.outputs),
            updates=tuple((swap(k), swapped(source)) for k, source in self.updates),
            givens=(),
        )


def _expressions() -> st.SearchStrategy[Expression]:
    operations = st.lists(st.sampled_from(list(OPERATIONS)), max_size=3).map(tuple)
    return st.builds(Expression, st.integers(ARGUMENT, COUNT - 1), operations)


def _numbers() -> st.SearchStrategy[int]:
    return st.integers(0, COUNT - 1)


def specs() -> st.SearchStrategy[Spec]:
    """Return a strategy that draws functions."""
    output = st.builds(Output, _expressions(), st.booleans(), st.booleans())
    return st.builds(
        Spec,
        outputs=st.one_of(st.just(()), st.lists(output, min_size=1, max_size=3).map(tuple)),
        updates=st.lists(st.tuples(_numbers(), _expressions()), max_size=3).map(tuple),
        givens=st.lists(st.tuples(_numbers(), _numbers()), max_size=1).map(tuple),
        argument=_numbers(),
        mutable=st.booleans(),
        default_updates=st.booleans(),
    )


def kinds() -> st.SearchStrategy[tuple[Kind, ...]]:
    """Return a strategy that draws the kinds of all shared variables; several variables often have the same kind."""
    # Draw these dtypes often, because variables of other dtypes are only used on the device if a float is computed from
    # them.
    dtype = st.one_of(st.sampled_from(("float32", "int32", "float32", "int64")), st.sampled_from(DTYPES))
    kind = st.builds(Kind, dtype, st.integers(0, 2))
    pair = st.tuples(kind, kind)
    return st.one_of(
        pair.map(lambda two: (two[0], two[0], two[1])),
        kind.map(lambda one: (one,) * COUNT),
        st.tuples(kind, kind, kind),
    )


def shapes_of(kind: Kind, lengths: Sequence[int]) -> tuple[int, ...]:
    """Return a shape for a kind: the first lengths, as many as the kind has dimensions."""
    return tuple(lengths[: kind.rank])
