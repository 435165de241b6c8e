"""Where the variables of a device graph come from: those of the function's own graph that have the same values.

A graph for the device is made by replacing variables, again and again. :class:`Origins` is a feature of the graph that
looks on, and keeps for each new variable what it stands for. Whoever compares the two graphs, step by step, has pairs
of variables by that.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from optdb.host.graph import FunctionGraph, Variable


class Origins:
    """Follows variables of a graph as they are replaced.

    Parameters
    ----------
    of : dict
        Variable to where it comes from.
    """

    def __init__(self, of: dict[Variable, Variable]) -> None:
        self.of = of

    def on_lifted(self, fgraph: FunctionGraph, pairs: Iterable[tuple[Variable, Variable]]) -> None:
        """Take note of a lift: pairs of old variables and new ones."""
        for old, new in pairs:
            self._follow(old, new)

    def on_change_input(
        self, fgraph: FunctionGraph, node: Any, i: int, old: Variable, new: Variable, reason: Any = None
    ) -> None:
        """Take note of a replacement."""
        self._follow(old, new)

    def of_clones(self, clones: Mapping[Any, Any]) -> Origins:
        """Return the origins of copies.

        Parameters
        ----------
        clones : mapping
            Variable to its copy; what else is in it does not matter.
        """
        return Origins({clones[var]: origin for var, origin in self.of.items() if var in clones})

    def within(self, fgraph: FunctionGraph) -> dict[Variable, Variable]:
        """Return the origins of the variables that a graph has now."""
        return {var: origin for var, origin in self.of.items() if var in fgraph.variables}

    def _follow(self, old: Variable, new: Variable) -> None:
        if old in self.of:
            self.of.setdefault(new, self.of[old])
