"""Elementwise loop fusion that finds whole groups of ops in one pass and builds each fused op once.

The pass visits nodes from outputs to inputs. A node joins the group of its users if all users are in one group with the
node's broadcast pattern, and if the fused op would not have too many arguments. Only the output of a group's last node
is used outside the group, so fusion creates no cycle. Cheap arithmetic is recomputed in several groups, and one-element
arithmetic for each element of a group, if recomputing saves a node and does not access more arrays.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from time import time
from typing import Any

from optdb.host.api import fusion as host
from optdb.host.api.config import config, logger
from optdb.host.api.graph import Apply, FunctionGraph, InconsistencyError, Variable, clients, is_output
from optdb.host.api.tensor import Elemwise, copy_stack_trace, discrete_dtypes

#: The maximum number of groups that recompute a cheap node, since each copy adds code to compile.
MAX_RECOMPUTING_GROUPS = 4
MAX_RECOMPUTED_PER_GROUP = 8
#: A group with this many recomputed nodes recomputes no more 0-d nodes. The limit is higher than for arrays, because
#: recomputing even an expensive 0-d op is cheaper than calling a separate node.
MAX_RECOMPUTED_SCALARS = 16


def takes_all(node: Apply) -> bool:
    """Accept every node."""
    return True


def is_integer_scalar(node: Apply) -> bool:
    """Return whether a node applies an elementwise op to integer scalars, such as lengths, and overwrites no input."""
    if not isinstance(node.op, Elemwise) or node.op.inplace_pattern:
        return False
    return all(var.type.ndim == 0 and var.type.dtype in discrete_dtypes for var in (*node.inputs, *node.outputs))


class GroupFusion(host.FusionOptimizer):
    """A FusionOptimizer for Elemwise that fuses whole groups of the nodes that `takes` accepts."""

    def __init__(self, takes: Callable[[Apply], bool] = takes_all) -> None:
        super().__init__(host.local_elemwise_fusion)
        self._takes = takes

    def apply(self, fgraph: FunctionGraph) -> tuple[Any, ...]:
        """Fuse the elementwise ops of `fgraph`, and return Theano's profile of the pass."""
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
    """The time that a profiled graph spends in its features."""

    def __init__(self, fgraph: FunctionGraph) -> None:
        self.fgraph = fgraph
        if fgraph.profile:
            self.validate = fgraph.profile.validate_time
            self.callback = fgraph.execute_callbacks_time
            self.callbacks = fgraph.execute_callbacks_times.copy()

    def since(self) -> tuple[float, float, dict[Any, float]]:
        """Return the seconds spent in validation, in all callbacks, and in each feature's callbacks."""
        fgraph = self.fgraph
        if not fgraph.profile:
            return 0, 0, {}
        callbacks = {k: v - self.callbacks.get(k, 0) for k, v in fgraph.execute_callbacks_times.items()}
        return fgraph.profile.validate_time - self.validate, fgraph.execute_callbacks_time - self.callback, callbacks


class Group:
    """Nodes that are fused into one node.

    Attributes
    ----------
    root : Apply
        The node whose output is the output of the group.
    members : list of Apply
        The root and all other members, users before their operands.
    inputs : set of Variable
        The inputs from outside the group.
    recomputed : int
        The number of recomputed members: members that other groups also compute, and one-element members that are
        computed for each element of the group.
    """

    def __init__(self, root: Apply) -> None:
        self.root = root
        self.members = [root]
        self.inputs = set(root.inputs)
        self.recomputed = 0
        self._limit: float = host.elemwise_max_input_fct(root)

    def has_room_for(self, node: Apply) -> bool:
        """Return whether the fused op stays within the limit on arguments if `node` joins the group."""
        return len(self._inputs_with(node)) <= self._limit

    def _inputs_with(self, node: Apply) -> set[Variable]:
        return self.inputs.difference(node.outputs).union(node.inputs)

    def join(self, node: Apply) -> None:
        """Add `node` to the group."""
        self.inputs = self._inputs_with(node)
        self.members.append(node)


class Grouping:
    """Finds the groups of a graph, whose nodes are added one by one, users before operands."""

    def __init__(self, takes: Callable[[Apply], bool]) -> None:
        self._takes = takes
        self._groups_of: dict[Apply, list[Group]] = {}
        self._groups: list[Group] = []
        self._c_code: dict[tuple[host.ScalarOp, tuple[str, ...], str], bool] = {}

    def add(self, fgraph: FunctionGraph, node: Apply) -> None:
        """Add `node` to its users' groups, or start a new group."""
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
        """Return the groups with more than one node."""
        return [group for group in self._groups if len(group.members) > 1]

    def _users_groups(self, fgraph: FunctionGraph, node: Apply) -> list[Group]:
        """Return the groups of all users of `node`; return an empty list if a user is in no group."""
        groups: dict[Group, None] = {}
        for client, _ in clients(fgraph, node.outputs[0]):
            client_groups = None if is_output(client) else self._groups_of.get(client)
            if client_groups is None:
                return []
            groups.update(dict.fromkeys(client_groups))
        return list(groups)

    def _leaves_several(self, fgraph: FunctionGraph, node: Apply) -> bool:
        """Return whether several nodes would remain if `node` were recomputed.

        If `node` is recomputed, its expensive operands remain separate nodes; otherwise, they could be fused with it.
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
                if host.is_cheap(host.scalar_op_of(owner)):
                    todo.append(owner)
                else:
                    left += 1
        return left > 1

    def _private_owner(self, fgraph: FunctionGraph, var: Variable) -> Apply | None:
        owner = var.owner
        if owner is None or type(owner.op) is not Elemwise or len(owner.outputs) != 1:
            return None
        return owner if len(clients(fgraph, var)) == 1 and self.can_fuse(owner) else None

    def can_fuse(self, node: Apply) -> bool:
        """Return whether an elementwise node may be fused, which requires C code for its scalar op."""
        if not self._takes(node):
            return False
        key = (host.scalar_op_of(node), tuple([var.type.dtype for var in node.inputs]), node.outputs[0].type.dtype)
        supported = self._c_code.get(key)
        if supported is None:
            supported = self._c_code[key] = host.has_c_code(*key)
            if not supported:
                logger.info("%s has no C code, so it is slow and not fused.", key[0])
        return supported


def _is_recomputed(node: Apply, groups: list[Group]) -> bool:
    """Return whether joining `groups` would compute `node` more than once, or for more elements."""
    (out,) = node.outputs
    return len(groups) > 1 or any(
        group.root.outputs[0].type.broadcastable != out.type.broadcastable for group in groups
    )


def _may_join(node: Apply, groups: list[Group], recomputed: bool) -> bool:
    """Return whether `node` can join all of `groups`, and is cheap enough if joining recomputes it."""
    if recomputed and not _is_worth_recomputing(node, groups):
        return False
    return all(group.has_room_for(node) for group in groups)


def _is_worth_recomputing(node: Apply, groups: list[Group]) -> bool:
    (out,) = node.outputs
    is_scalar = out.type.ndim == 0
    most = MAX_RECOMPUTED_SCALARS if is_scalar else MAX_RECOMPUTED_PER_GROUP
    if len(groups) > MAX_RECOMPUTING_GROUPS or not (is_scalar or host.is_cheap(host.scalar_op_of(node))):
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
    """Builds fused nodes; groups with the same structure share one op."""

    def __init__(self) -> None:
        self._ops: dict[Hashable, Elemwise] = {}

    def build(self, group: Group) -> Variable:
        """Return the output of a node that computes `group`."""
        inputs = _ordered_inputs(group)
        number = {var: i for i, var in enumerate(inputs)}
        steps: list[host.Step] = []
        for node in reversed(group.members):
            steps.append(
                (host.scalar_op_of(node), tuple([number[var] for var in node.inputs]), node.outputs[0].type.dtype)
            )
            number[node.outputs[0]] = len(number)
        key = (tuple([var.type.dtype for var in inputs]), tuple(steps))
        op = self._ops.get(key)
        if op is None:
            op = self._ops[key] = Elemwise(host.composite(inputs, steps))
        if config.compute_test_value != "off":
            out: Variable = op(*inputs)
            return out
        # All members have the same rank, and broadcasting is associative, so the result has the root's type.
        return Apply(op, inputs, [group.root.outputs[0].type()]).outputs[0]


def _ordered_inputs(group: Group) -> list[Variable]:
    """Return the inputs of a group from outside, in depth-first order from its root."""
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
