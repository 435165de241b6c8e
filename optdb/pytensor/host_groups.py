"""Groups of host nodes; each group is compiled as one function."""

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

from optdb.pytensor.dispatch import batched, described, is_array
from optdb.pytensor.sources import Source, mode_of_linker

#: The maximum length of an op's name in reports, in characters.
_NAME_LENGTH = 60


def linkers() -> Iterator[str]:
    """Return PyTensor's linkers that can compile a group, in the order in which they are tried."""
    if find_spec("numba") is not None:
        yield "numba"
    if config.cxx:
        yield "cvm"
    yield "py"


class HostGroup:
    """Host nodes in topological order, which are compiled as one function on the first call.

    `outputs` are the variables that are results of the graph or inputs to nodes outside the group. `left` contains the
    nodes in the group that need the host.
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
        #: The variables computed outside the group; constants are compiled into the function.
        self.inputs = [var for var in taken if var not in made and not isinstance(var, Constant)]
        self._overwrites = any(node.op.destroy_map for node in nodes)
        self.linker = ""
        self._function: Any = None

    def __str__(self) -> str:
        others = len(self.nodes) - len(self._left)
        joined = f" with {others} small nodes of the device" if others else ""
        names = ", ".join(dict.fromkeys(map(op_name, self._left)))
        return f"{names}{joined} by the linker {self.linker!r}"

    def __call__(self, values: Sequence[Any]) -> list[Any]:
        pairs = zip(self.inputs, values, strict=True)
        args = [value[()] if isinstance(var.type, ScalarType) else value for var, value in pairs]
        return self._first(args) if self._function is None else self._results(args)

    def _first(self, args: Sequence[Any]) -> list[Any]:
        """Compile and call the function with the first linker that succeeds."""
        failures = compile_errors()
        failed: Exception = AssertionError("Python's linker is tried last")
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
        # The outputs are copied to the device before the next call, so they may be borrowed.
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


def compile_errors() -> tuple[type[Exception], ...]:
    """Return the exceptions that the first call raises if a linker does not support an op."""
    if find_spec("numba") is None:
        return (NotImplementedError,)
    return NotImplementedError, import_module("numba.core.errors").NumbaError


def op_name(node: Apply) -> str:
    """Return the name of a node's op for reports."""
    name = re.sub(r"\s+", " ", str(node.op))
    return name if len(name) <= _NAME_LENGTH else f"{name[:_NAME_LENGTH]}..."


class HostNodes:
    """The nodes of a function that need the host, and the groups that they form."""

    def __init__(self, source: Source) -> None:
        self._source = source
        #: The reason why each node needs the host.
        self.reasons: dict[Apply, str] = {}
        self._groups: dict[frozenset[Apply], HostGroup] = {}

    def apart(self) -> HostNodes:
        """Return a new object for an inner graph, without groups or reasons."""
        return HostNodes(self._source)

    @property
    def compiles(self) -> bool:
        """Whether groups are compiled rather than run in Python."""
        return next(linkers()) != "py"

    def includes(self, node: Apply) -> bool:
        """Return whether a node is known to need the host."""
        if node not in self.reasons:
            reason = _undescribed_reason(node.op)
            if reason is None:
                return False
            self.reasons[node] = reason
        return True

    def next_group(
        self, waiting: Sequence[Apply], is_small: Callable[[Apply], bool], results: Sequence[Variable]
    ) -> HostGroup:
        """Return the next nodes to run on the host: host nodes that do not depend on waiting device nodes.

        If all waiting host nodes and the device nodes that they depend on are small, return all of them instead. The
        waiting nodes are in topological order; each of them is a host node or depends on a host node.
        """
        nodes = self._ready(waiting)
        between = self._with_needed(waiting)
        if all(map(is_small, between)):
            nodes = between
        return self.group(nodes, waiting, results)

    def group(self, nodes: Sequence[Apply], waiting: Sequence[Apply], results: Sequence[Variable]) -> HostGroup:
        key = frozenset(nodes)
        if key not in self._groups:
            needed = {*results, *(var for node in waiting if node not in key for var in node.inputs)}
            outputs = [var for node in nodes for var in node.outputs if var in needed]
            self._groups[key] = HostGroup(nodes, outputs, list(filter(self.includes, nodes)), self._source)
        return self._groups[key]

    def _ready(self, waiting: Sequence[Apply]) -> list[Apply]:
        """Return the host nodes that do not depend on waiting device nodes."""
        blocked: set[Variable] = set()
        ready: list[Apply] = []
        for node in waiting:
            if self.includes(node) and blocked.isdisjoint(node.inputs):
                ready.append(node)
            else:
                blocked.update(node.outputs)
        return ready

    def _with_needed(self, waiting: Sequence[Apply]) -> list[Apply]:
        """Return all waiting host nodes, and the waiting nodes that they depend on."""
        needed: set[Variable] = set()
        found: list[Apply] = []
        for node in reversed(waiting):
            if self.includes(node) or not needed.isdisjoint(node.outputs):
                needed.update(node.inputs)
                found.append(node)
        return found[::-1]


def _undescribed_reason(op: Any) -> str | None:
    """Return why the device does not support an op; None if it supports at least some uses of the op."""
    if described.dispatch(type(op)) is described.dispatch(object):
        return f"{type(op).__name__} is not supported on the device"
    if isinstance(op, Blockwise) and batched.dispatch(type(op.core_op)) is batched.dispatch(object):
        return f"{op.core_op} is not computed in batches on the device"
    return None
