"""Elementwise loop fusion in one pass, which finds each whole group of ops and builds it once.

Outputs towards inputs, a node joins the group of its users where all of them
are in one group, work on the same broadcast pattern, and the fused op would
not have too many arguments.  So the output of its last node, its *root*, is
the only output of a group, and fusion closes no cycle.  Theano's
FusionOptimizer comes to the same groups, but it fuses a pair at a time, builds
a Composite for each, and sorts the graph again until nothing changes.

Cheap arithmetic is recomputed where that saves a node: a cheap node joins each
of several groups that use it, and one of a single element joins the group of a
larger pattern.  Theano leaves such work duplicated where its rewriters derive
it twice; the engine, which shares it, would have more nodes otherwise.
Recomputed nodes depend on no member of the group, so that this closes no cycle
either.  :data:`MAX_RECOMPUTING_GROUPS` and :data:`MAX_RECOMPUTED_PER_GROUP`
bound the work, and an array is not recomputed from more arrays than it saves.

Groups of the same structure get the same op.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from time import time
from typing import Any

from optdb.host.api.config import config, logger
from optdb.host.api.fusion import (
    FusionOptimizer,
    ScalarOp,
    Step,
    composite,
    elemwise_max_input_fct,
    has_c_code,
    is_cheap,
    local_elemwise_fusion,
    scalar_op_of,
)
from optdb.host.api.graph import Apply, FunctionGraph, InconsistencyError, Variable, clients, is_output
from optdb.host.api.tensor import Elemwise, copy_stack_trace, discrete_dtypes

#: A cheap node with more groups of users than this is computed once: copies are code that the compiler reads.
MAX_RECOMPUTING_GROUPS = 4
#: A group recomputes at most this many nodes for each element.
MAX_RECOMPUTED_PER_GROUP = 8
#: Likewise where there is one element only, so that any op is cheaper than a node.
MAX_RECOMPUTED_SCALARS = 16


def takes_all(node: Apply) -> bool:
    """Let every node be fused."""
    return True


def is_integer_scalar(node: Apply) -> bool:
    """Tell whether an elementwise node computes an integer from others, as of lengths and indices, not in place."""
    if not isinstance(node.op, Elemwise) or node.op.inplace_pattern:
        return False
    return all(var.type.ndim == 0 and var.type.dtype in discrete_dtypes for var in (*node.inputs, *node.outputs))


class GroupFusion(FusionOptimizer):
    """Theano's FusionOptimizer of Elemwise, a group at a time.

    Parameters
    ----------
    takes : callable
        Whether an elementwise node may be fused.
    """

    def __init__(self, takes: Callable[[Apply], bool] = takes_all) -> None:
        super().__init__(local_elemwise_fusion)
        self._takes = takes

    def apply(self, fgraph: FunctionGraph) -> tuple[Any, ...]:
        """Fuse the elementwise ops of `fgraph`, and return Theano's profile of that."""
        spent = Spent(fgraph)
        start = time()
        nodes = fgraph.toposort()
        sorting = time() - start
        groups = Grouping(self._takes)
        for node in reversed(nodes):
            groups.add(fgraph, node)
        builder = FusedNodeBuilder()
        replaced = refused = 0
        for group in groups.worth_fusing():
            old = group.root.outputs[0]
            new = builder.build(group)
            copy_stack_trace(old, new)
            try:
                fgraph.replace_all_validate([(old, new)], reason=type(self).__name__)
                replaced += 1
            except InconsistencyError:
                refused += 1
        return (self, 1, replaced, refused, *spent.since(), sorting)


class Spent:
    """The time that a profiled graph spends with its features, as Theano reports it."""

    def __init__(self, fgraph: FunctionGraph) -> None:
        self.fgraph = fgraph
        if fgraph.profile:
            self.validate = fgraph.profile.validate_time
            self.callback = fgraph.execute_callbacks_time
            self.callbacks = fgraph.execute_callbacks_times.copy()

    def since(self) -> tuple[float, float, dict[Any, float]]:
        """Return validation, all callbacks, and each feature's."""
        fgraph = self.fgraph
        if not fgraph.profile:
            return 0, 0, {}
        callbacks = {k: v - self.callbacks.get(k, 0) for k, v in fgraph.execute_callbacks_times.items()}
        return fgraph.profile.validate_time - self.validate, fgraph.execute_callbacks_time - self.callback, callbacks


class Group:
    """Nodes that become one.

    Attributes
    ----------
    root : Apply
        The node whose output is the group's.
    members : list of Apply
        The root and the others, users before what they use.
    inputs : set of Variable
        What comes in from outside.
    recomputed : int
        How many members are computed elsewhere, too, or for each element though they have one.
    """

    def __init__(self, root: Apply) -> None:
        self.root = root
        self.members = [root]
        self.inputs = set(root.inputs)
        self.recomputed = 0
        self._limit: float = elemwise_max_input_fct(root)

    def has_room_for(self, node: Apply) -> bool:
        """Tell whether the fused op would not have too many arguments if `node` joined."""
        return len(self._inputs_with(node)) <= self._limit

    def _inputs_with(self, node: Apply) -> set[Variable]:
        return self.inputs.difference(node.outputs).union(node.inputs)

    def join(self, node: Apply) -> None:
        """Take `node` in."""
        self.inputs = self._inputs_with(node)
        self.members.append(node)


class Grouping:
    """The groups of a graph, found as its nodes are added, users first."""

    def __init__(self, takes: Callable[[Apply], bool]) -> None:
        self._takes = takes
        self._groups_of: dict[Apply, list[Group]] = {}
        self._groups: list[Group] = []
        self._c_code: dict[tuple[ScalarOp, tuple[str, ...], str], bool] = {}

    def add(self, fgraph: FunctionGraph, node: Apply) -> None:
        """Add `node` to its users' groups, or begin one."""
        if not isinstance(node.op, Elemwise) or len(node.outputs) != 1 or not self.can_fuse(node):
            return
        groups = self._users_groups(fgraph, node)
        recomputed = _is_recomputed(node, groups)
        if groups and _may_join(node, groups, recomputed) and not (recomputed and self._leaves_several(fgraph, node)):
            for group in groups:
                group.join(node)
                group.recomputed += recomputed
        elif type(node.op) is Elemwise:
            groups = [Group(node)]
            self._groups += groups
        else:
            return
        self._groups_of[node] = groups

    def worth_fusing(self) -> list[Group]:
        """Return the groups of more than one node."""
        return [group for group in self._groups if len(group.members) > 1]

    def _users_groups(self, fgraph: FunctionGraph, node: Apply) -> list[Group]:
        """Return the groups of all users of `node`; none where a user is in no group."""
        groups: dict[Group, None] = {}
        for client, _ in clients(fgraph, node.outputs[0]):
            client_groups = None if is_output(client) else self._groups_of.get(client)
            if client_groups is None:
                return []
            groups.update(dict.fromkeys(client_groups))
        return list(groups)

    def _leaves_several(self, fgraph: FunctionGraph, node: Apply) -> bool:
        """Tell whether several nodes would be left if `node` were recomputed.

        Its cheap operands would be recomputed, too. Others, such as an exp or a log, would not: each of them would
        stay a node, where one node can compute them all together with `node`.
        """
        if not node.outputs[0].type.ndim:
            return False
        pattern = node.outputs[0].type.broadcastable
        left, todo = 0, [node]
        while todo and left < 2:
            for var in todo.pop().inputs:
                owner = self._private_owner(fgraph, var)
                if owner is None or var.type.broadcastable != pattern:
                    continue
                if is_cheap(scalar_op_of(owner)):
                    todo.append(owner)
                else:
                    left += 1
        return left > 1

    def _private_owner(self, fgraph: FunctionGraph, var: Variable) -> Apply | None:
        """Return the elementwise node that computes `var` for one user alone, if it can be fused."""
        owner = var.owner
        if owner is None or type(owner.op) is not Elemwise or len(owner.outputs) != 1:
            return None
        return owner if len(clients(fgraph, var)) == 1 and self.can_fuse(owner) else None

    def can_fuse(self, node: Apply) -> bool:
        """Tell whether an elementwise node may be fused, and its scalar op has C code for its inputs."""
        if not self._takes(node):
            return False
        key = (scalar_op_of(node), tuple([var.type.dtype for var in node.inputs]), node.outputs[0].type.dtype)
        supported = self._c_code.get(key)
        if supported is None:
            supported = self._c_code[key] = has_c_code(*key)
            if not supported:
                logger.info("%s has no C code: it is slow, and it is not fused.", key[0])
        return supported


def _is_recomputed(node: Apply, groups: list[Group]) -> bool:
    """Tell whether `node` would be computed more often than now if it joined `groups`."""
    (out,) = node.outputs
    return len(groups) > 1 or any(
        group.root.outputs[0].type.broadcastable != out.type.broadcastable for group in groups
    )


def _may_join(node: Apply, groups: list[Group], recomputed: bool) -> bool:
    """Tell whether `node` can be a member of each of `groups`, and is cheap enough to be one."""
    if recomputed and not _is_worth_recomputing(node, groups):
        return False
    return all(group.has_room_for(node) for group in groups)


def _is_worth_recomputing(node: Apply, groups: list[Group]) -> bool:
    (out,) = node.outputs
    is_scalar = out.type.ndim == 0
    most = MAX_RECOMPUTED_SCALARS if is_scalar else MAX_RECOMPUTED_PER_GROUP
    if len(groups) > MAX_RECOMPUTING_GROUPS or not (is_scalar or is_cheap(scalar_op_of(node))):
        return False
    for group in groups:
        same_pattern = group.root.outputs[0].type.broadcastable == out.type.broadcastable
        if group.recomputed >= most or not (same_pattern or all(out.type.broadcastable)):
            return False
    arrays = {var for var in node.inputs if not all(var.type.broadcastable)}
    more_reads = sum(len(arrays - group.inputs) for group in groups)
    saved_reads_and_writes = len(arrays) + 1 + len(groups)
    return more_reads <= saved_reads_and_writes


class FusedNodeBuilder:
    """Makes fused nodes; those of all groups of a structure share their op."""

    def __init__(self) -> None:
        self._ops: dict[Hashable, Elemwise] = {}

    def build(self, group: Group) -> Variable:
        """Return the output of a node that computes what `group` does."""
        inputs = _ordered_inputs(group)
        number = {var: i for i, var in enumerate(inputs)}
        steps: list[Step] = []
        for node in reversed(group.members):
            steps.append((scalar_op_of(node), tuple([number[var] for var in node.inputs]), node.outputs[0].type.dtype))
            number[node.outputs[0]] = len(number)
        key = (tuple([var.type.dtype for var in inputs]), tuple(steps))
        op = self._ops.get(key)
        if op is None:
            op = self._ops[key] = Elemwise(composite(inputs, steps))
        if config.compute_test_value != "off":
            out: Variable = op(*inputs)
            return out
        # All variables in a group have one rank, and patterns combine in any order: the type is the root's.
        return Apply(op, inputs, [group.root.outputs[0].type()]).outputs[0]


def _ordered_inputs(group: Group) -> list[Variable]:
    """Return the external inputs of a group, depth first from its root, left to right."""
    inside = {node.outputs[0]: node for node in group.members}
    external: dict[Variable, None] = {}
    todo = list(group.root.outputs)
    while todo:
        var = todo.pop()
        if var in inside:
            todo.extend(reversed(inside.pop(var).inputs))
        else:
            external[var] = None
    return [var for var in external if var in group.inputs]
