"""What PyTensor infers about matrices (diagonal, symmetric and so on), in less time.

Rewriters of products ask for assumptions at each node, and after each change of the graph PyTensor infers what depends
on it again.  Here the rules of an op are looked up once, and operands are inferred only where a rule reads them.
"""

from __future__ import annotations

from typing import Any

from pytensor.assumptions.core import (
    ASSUMPTION_INFER_REGISTRY,
    CLIENT_INFER_KEYS,
    CLIENT_INFER_REGISTRY,
    CONSTANT_INFER_REGISTRY,
    IMPLIES,
    AssumptionFeature,
    AssumptionKey,
    ConflictingAssumptionsError,
    FactState,
)
from pytensor.tensor.blockwise import Blockwise
from pytensor.tensor.variable import TensorConstant

from optdb.host.api.graph import Variable
from optdb.host.api.patching import Patch

__all__ = ["patches"]

UNKNOWN, TRUE, FALSE, CONFLICT = FactState.UNKNOWN, FactState.TRUE, FactState.FALSE, FactState.CONFLICT


class _Lookups:
    """Answers of PyTensor's registries by key and class, while the registries stay as they are."""

    def __init__(self) -> None:
        self._sizes: tuple[int, ...] = ()
        self._rules: dict[tuple[int, type], Any] = {}
        self._client_rules: dict[tuple[int, type], Any] = {}
        self._stronger: dict[int, list[AssumptionKey]] = {}
        self._keys: dict[int, AssumptionKey] = {}

    def renew(self) -> None:
        """Forget the answers if a registry has grown."""
        sizes = (len(ASSUMPTION_INFER_REGISTRY), len(CLIENT_INFER_REGISTRY), *map(len, IMPLIES.values()))
        if sizes != self._sizes:
            self.__init__()  # type: ignore[misc]
            self._sizes = sizes

    def rules(self, key: AssumptionKey, op_class: type) -> list[Any]:
        """Return the rules of the most specific class that has some."""
        found = self._rules.get((id(key), op_class))
        if found is None:
            self._keys[id(key)] = key  # so that no other key gets its id
            registered = (ASSUMPTION_INFER_REGISTRY.get((key, cls)) for cls in op_class.__mro__)
            found = self._rules[id(key), op_class] = next((rules for rules in registered if rules is not None), [])
        return found

    def client_rule(self, key: AssumptionKey, op: Any) -> Any:
        """Return what tells of an input of a client of `op`, if there is a rule."""
        op_class = type(op.core_op) if isinstance(op, Blockwise) else type(op)
        at = (id(key), op_class)
        if at not in self._client_rules:
            self._keys[id(key)] = key
            registered = (CLIENT_INFER_REGISTRY.get((key, cls)) for cls in op_class.__mro__)
            self._client_rules[at] = next((rule for rule in registered if rule is not None), None)
        return self._client_rules[at]

    def stronger(self, key: AssumptionKey) -> list[AssumptionKey]:
        """Return the keys that imply `key`."""
        found = self._stronger.get(id(key))
        if found is None:
            self._keys[id(key)] = key
            found = self._stronger[id(key)] = [strong for strong, weaker in IMPLIES.items() if key in weaker]
        return found


_lookups = _Lookups()


def _compute(self: AssumptionFeature, var: Variable, key: AssumptionKey) -> FactState:
    """Infer a fact and those that it depends on, operands first: PyTensor's ``AssumptionFeature._compute``."""
    _lookups.renew()
    cache = self.cache
    todo = [var]
    while todo:
        top = todo[-1]
        if (top, key) in cache:
            todo.pop()
            continue
        owner = top.owner
        if owner is not None and _lookups.rules(key, type(owner.op)):
            missing = [inp for inp in owner.inputs if (inp, key) not in cache]
            if missing:
                todo += missing
                continue
        todo.pop()
        _infer(self, top, key)
    return cache[var, key]


def _infer(feature: AssumptionFeature, var: Variable, key: AssumptionKey) -> None:
    """Infer a fact whose operands' facts are known."""
    cache = feature.cache
    cache[var, key] = UNKNOWN  # what a rule sees that asks for it meanwhile
    feature._var_to_keys.setdefault(var, set()).add(key)
    state = _from_owner(feature, var, key)
    if state is UNKNOWN and key in CLIENT_INFER_KEYS:
        state = _from_clients(feature, var, key)
    if state is UNKNOWN:
        state = _from_other_keys(feature, var, key)
    if state is CONFLICT:
        raise ConflictingAssumptionsError(f"Conflicting evidence for {key} on {var!r} from owner-inferred rules.")
    cache[var, key] = state


def _state(feature: AssumptionFeature, var: Variable, key: AssumptionKey) -> FactState:
    """Return a fact while others are inferred: nothing in the graph has changed since that began."""
    state = feature.cache.get((var, key))
    return feature.get(var, key) if state is None or state is CONFLICT else state


def _from_other_keys(feature: AssumptionFeature, var: Variable, key: AssumptionKey) -> FactState:
    for strong in _lookups.stronger(key):
        if _state(feature, var, strong) is TRUE:
            return TRUE
    for weak in IMPLIES.get(key, ()):
        if _state(feature, var, weak) is FALSE:
            return FALSE
    return UNKNOWN


def _from_owner(feature: AssumptionFeature, var: Variable, key: AssumptionKey) -> FactState:
    node = var.owner
    if node is None:
        if isinstance(var, TensorConstant) and key in CONSTANT_INFER_REGISTRY:
            return CONSTANT_INFER_REGISTRY[key](var)
        return UNKNOWN
    rules = _lookups.rules(key, type(node.op))
    if not rules:
        return UNKNOWN
    inputs = [_state(feature, inp, key) for inp in node.inputs]
    for rule in rules:
        outputs = rule(key, node.op, feature, feature.fgraph, node, inputs)
        if len(outputs) != len(node.outputs):
            raise ValueError(
                f"an assumption rule returned {len(outputs)} states for {len(node.outputs)} outputs on node {node!r}"
            )
        if any(state is not UNKNOWN for state in outputs):
            return outputs[var.index]
    return UNKNOWN


def _from_clients(feature: AssumptionFeature, var: Variable, key: AssumptionKey) -> FactState:
    for client, slot in feature.fgraph.clients.get(var, ()):
        rule = _lookups.client_rule(key, client.op)
        state = UNKNOWN if rule is None else rule(key, _core_op(client.op), client, slot)
        if state is not UNKNOWN:
            return state
    return UNKNOWN


def _core_op(op: Any) -> Any:
    return op.core_op if isinstance(op, Blockwise) else op


def patches() -> list[Patch]:
    """Return the patch."""
    return [Patch(AssumptionFeature, "_compute", _compute, "rules are looked up once")]
