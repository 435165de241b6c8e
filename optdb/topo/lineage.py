"""Detection of rewriters that undo each other: A becomes B, B becomes A, and so on.

A replacement's *ancestors* are the nodes that it replaced, directly or indirectly. Replacements with several
generations of ancestors are numbered by their ops and operands (value numbering). A node with the same number as one of
its ancestors closes a loop. After a few repetitions, the engine reports the rule that replaced this ancestor, and stops
applying the rule to nodes with this number.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import Any

from optdb.host.api.graph import Apply, Constant, Variable
from optdb.topo.rules import Rule

#: A loop is stopped after this many repetitions, not at once: a rewriter may need a second visit to a node whose
#: neighbours changed.
PATIENCE = 3
#: Replacements are numbered from this generation on, because usually only loops have so many generations.
FIRST_NUMBERED = 4
_DEPTH = 64


class Lineage:
    """The numbers and ancestors of nodes in one run."""

    def __init__(self) -> None:
        self._parent: dict[Apply, tuple[Apply, Rule, int]] = {}
        self._numbers: dict[Hashable, int] = {}
        self._number_of: dict[Apply, int] = {}
        self._kept: list[Any] = []
        # Each entry keeps its op alive, so that the op's id is not reused.
        self._op_numbers: dict[int, tuple[Any, Hashable]] = {}
        self._replaced: set[int] = set()
        self._loops: dict[int, int] = {}
        self._stopped: set[tuple[Rule, int]] = set()

    def is_stopped(self, rule: Rule, node: Apply) -> bool:
        """Return whether `rule` must no longer be applied to nodes like `node`."""
        return bool(self._stopped) and (rule, self._number(node)) in self._stopped

    def replaced(self, node: Apply, rule: Rule, fresh: Iterable[Apply]) -> Rule | None:
        """Record that `rule` replaced `node` with the nodes `fresh`, in which operands come first.

        If a loop has run too often, return the rule that `rule` keeps undoing; from then on, that rule is not applied
        to nodes like those in `fresh`.
        """
        step = self._parent.get(node)
        generation = 1 if step is None else step[2] + 1
        self._parent.update(dict.fromkeys(fresh, (node, rule, generation)))
        if generation < FIRST_NUMBERED:
            return None
        self._replaced.add(self._number(node))
        undone = None
        for child in fresh:
            number = self._number(child)
            if number in self._replaced:
                undone = self._close_loop(child, number) or undone
        return undone

    def _close_loop(self, node: Apply, number: int) -> Rule | None:
        rule = self._rule_that_left(node, number)
        if rule is None:
            return None
        self._loops[number] = self._loops.get(number, 0) + 1
        if self._loops[number] <= PATIENCE:
            return None
        self._stopped.add((rule, number))
        return rule

    def _rule_that_left(self, node: Apply, number: int) -> Rule | None:
        for _ in range(_DEPTH):
            step = self._parent.get(node)
            if step is None:
                return None
            node, rule, _ = step
            if self._number(node) == number:
                return rule
        return None

    def _number(self, node: Apply) -> int:
        cached = self._number_of.get(node)
        if cached is not None:
            return cached
        key = (self._intern(node.op), *map(self._operand, node.inputs))
        number = self._numbers.setdefault(key, len(self._numbers))
        self._number_of[node] = number
        return number

    def _operand(self, var: Variable) -> Hashable:
        if var.owner is not None and var.owner in self._number_of:
            return (self._number_of[var.owner], var.index)
        if isinstance(var, Constant):
            return _constant_key(var) or self._identity(var)
        return self._identity(var)

    def _intern(self, op: Any) -> Hashable:
        entry = self._op_numbers.get(id(op))
        if entry is None:
            entry = self._op_numbers[id(op)] = (op, self._number_of_op(op))
        return entry[1]

    def _number_of_op(self, op: Any) -> Hashable:
        try:
            return self._numbers.setdefault((type(op), op), len(self._numbers))
        except TypeError:  # an unhashable op is equal only to itself
            return self._identity(op)

    def _identity(self, thing: Any) -> int:
        # Keep the object alive, so that its id is not reused. The result is negative, unlike all value numbers.
        self._kept.append(thing)
        return -id(thing)


def _constant_key(var: Constant) -> Hashable | None:
    """Return a key for a constant of one element, else None; rewriters often create equal constants of one element."""
    data: Any = getattr(var, "data", None)
    if getattr(data, "size", None) == 1:
        return (var.type, data.tobytes())
    return None
