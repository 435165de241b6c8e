"""The nodes of a function that its host computes, in groups that are each one compiled function."""

from __future__ import annotations

import copy
import re
import warnings
from collections.abc import Callable, Iterator, Sequence
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import numpy as np
import pytensor
from pytensor.compile.io import Out
from pytensor.configdefaults import config
from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.scalar.basic import ScalarType
from pytensor.tensor.blockwise import Blockwise

from optdb.pytensor.batched import batched
from optdb.pytensor.dispatch import described, is_array
from optdb.pytensor.sources import Source, mode_of_linker

__all__ = ["HostGroup", "HostNodes", "compile_errors", "op_name"]

#: Names of ops in reports are cut off after so many characters.
_NAME_LENGTH = 60


def linkers() -> Iterator[str]:
    """Return PyTensor's linkers that can compile a group, the one to try first ahead."""
    if find_spec("numba") is not None:
        yield "numba"
    if config.cxx:
        yield "cvm"
    yield "py"


class HostGroup:
    """Nodes that the host computes, compiled as one function at its first call.

    Parameters
    ----------
    nodes : sequence of Apply
        The nodes, in topological order.
    outputs : sequence of Variable
        Those of their outputs that others need.
    left : sequence of Apply
        Those of the nodes that are left to the host; the others join them.
    source : Source
        What the function was compiled from.
    """

    def __init__(
        self, nodes: Sequence[Apply], outputs: Sequence[Variable], left: Sequence[Apply], source: Source
    ) -> None:
        self._source = source
        self._left = left
        self.nodes = nodes
        self.outputs = outputs
        made = {var for node in nodes for var in node.outputs}
        taken = dict.fromkeys(var for node in nodes for var in node.inputs)
        #: What others compute; constants are a part of the function.
        self.inputs = [var for var in taken if var not in made and not isinstance(var, Constant)]
        self._overwrites = any(node.op.destroy_map for node in nodes)
        #: The linker that compiled the function.
        self.linker = ""
        self._function: Any = None

    def __str__(self) -> str:
        others = len(self.nodes) - len(self._left)
        joined = f" with {others} small nodes of the device" if others else ""
        names = ", ".join(dict.fromkeys(map(op_name, self._left)))
        return f"{names}{joined} by the linker {self.linker!r}"

    def __call__(self, values: Sequence[Any]) -> list[Any]:
        """Return the outputs' values for those of the inputs, which stay as they are."""
        args = [_argument(var, value) for var, value in zip(self.inputs, values, strict=True)]
        if self._function is None:
            return self._first(args)
        return self._results(args)

    def _first(self, args: Sequence[Any]) -> list[Any]:
        """Compile and call the function by the first linker that can: numba compiles at the first call."""
        failures = compile_errors()
        failed: Exception = AssertionError("Python's linker is the last one")
        for self.linker in linkers():
            with warnings.catch_warnings():
                warnings.filterwarnings("ignore", "Numba will use object mode", UserWarning)
                try:
                    self._function = self._compiled()
                except Exception as error:
                    failed = error
                    continue
                try:
                    return self._results(args)
                except failures as error:
                    self._function, failed = None, error
        raise failed

    def _compiled(self) -> Any:
        fresh = [var.type() for var in self.inputs]
        copies: dict[Variable, Variable] = dict(zip(self.inputs, fresh))
        for node in self.nodes:
            outputs = [var.type() for var in node.outputs]
            copies.update(zip(node.outputs, outputs))
            Apply(node.op, [copies.get(var, var) for var in node.inputs], outputs)
        # Arrays are copied to the device before the next call.
        results = [Out(copies[var], borrow=is_array(var)) for var in self.outputs]
        mode = mode_of_linker(self.linker, self._source)
        return pytensor.function(
            fresh, results, mode=mode, accept_inplace=self._overwrites, on_unused_input="ignore", trust_input=True
        )

    def _results(self, args: Sequence[Any]) -> list[Any]:
        given = [copy.deepcopy(value) for value in args] if self._overwrites else args
        return [
            np.asarray(result, var.type.dtype) if is_array(var) else result
            for var, result in zip(self.outputs, self._function(*given), strict=True)
        ]


def _argument(var: Variable, value: Any) -> Any:
    return value[()] if isinstance(var.type, ScalarType) else value


def compile_errors() -> tuple[type[Exception], ...]:
    """Return the errors by which a first call says that a linker does not know an op."""
    if find_spec("numba") is None:
        return (NotImplementedError,)
    return NotImplementedError, import_module("numba.core.errors").NumbaError


def op_name(node: Apply) -> str:
    """Return the name of a node's op for reports."""
    name = re.sub(r"\s+", " ", str(node.op))
    return name if len(name) <= _NAME_LENGTH else f"{name[:_NAME_LENGTH]}..."


class HostNodes:
    """Which nodes of a function are left to the host, and the groups that these form.

    Parameters
    ----------
    source : Source
        What the function was compiled from.
    """

    def __init__(self, source: Source) -> None:
        self._source = source
        #: Why nodes are left to the host.
        self.reasons: dict[Apply, str] = {}
        self._groups: dict[frozenset[Apply], HostGroup] = {}

    def apart(self) -> HostNodes:
        """Return the same for the nodes of an inner graph, whose reasons are not those of the function."""
        return HostNodes(self._source)

    @property
    def compiles(self) -> bool:
        """Whether groups are compiled, and not run in Python."""
        return next(linkers()) != "py"

    def includes(self, node: Apply) -> bool:
        """Tell whether a node is known to be left to the host."""
        if node not in self.reasons:
            reason = _undescribed_reason(node.op)
            if reason is None:
                return False
            self.reasons[node] = reason
        return True

    def next_group(
        self, waiting: Sequence[Apply], is_small: Callable[[Apply], bool], results: Sequence[Variable]
    ) -> HostGroup:
        """Return the next nodes that the host computes.

        These are the ones that need nothing of the device's nodes that wait. Where all nodes are small, these are all
        of the host, with those of the device between them.

        Parameters
        ----------
        waiting : sequence of Apply
            The nodes that are not computed yet, in topological order; each waits for one of the host.
        is_small : callable
            Tells whether a node has few elements.
        results : sequence of Variable
            What is computed in the end.
        """
        nodes = self._ready(waiting)
        between = self._with_needed(waiting)
        if all(map(is_small, between)):
            nodes = between
        return self.group(nodes, waiting, results)

    def group(self, nodes: Sequence[Apply], waiting: Sequence[Apply], results: Sequence[Variable]) -> HostGroup:
        """Return the group of some of the nodes that wait."""
        key = frozenset(nodes)
        if key not in self._groups:
            needed = {*results, *(var for node in waiting if node not in key for var in node.inputs)}
            outputs = [var for node in nodes for var in node.outputs if var in needed]
            self._groups[key] = HostGroup(nodes, outputs, list(filter(self.includes, nodes)), self._source)
        return self._groups[key]

    def _ready(self, waiting: Sequence[Apply]) -> list[Apply]:
        """Return the nodes of the host that need nothing of the device's nodes that wait."""
        blocked: set[Variable] = set()
        ready: list[Apply] = []
        for node in waiting:
            if self.includes(node) and blocked.isdisjoint(node.inputs):
                ready.append(node)
            else:
                blocked.update(node.outputs)
        return ready

    def _with_needed(self, waiting: Sequence[Apply]) -> list[Apply]:
        """Return all nodes of the host, with those that these need."""
        needed: set[Variable] = set()
        found: list[Apply] = []
        for node in reversed(waiting):
            if self.includes(node) or not needed.isdisjoint(node.outputs):
                needed.update(node.inputs)
                found.append(node)
        return found[::-1]


def _undescribed_reason(op: Any) -> str | None:
    """Return why no node of an op is described to the device; None if some are."""
    if described.dispatch(type(op)) is described.dispatch(object):
        return f"{type(op).__name__} is not among the ops of the device"
    if isinstance(op, Blockwise) and batched.dispatch(type(op.core_op)) is batched.dispatch(object):
        return f"{op.core_op} is not computed in batches on the device"
    return None
