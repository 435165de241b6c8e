"""Faster inference of PyTensor's assumptions about matrices (diagonal, symmetric and so on).

Facts are stored by assumption, rules are looked up once per op class, and facts about operands are inferred only if a
rule reads them.
"""

from __future__ import annotations

from collections.abc import Callable
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
from pytensor.graph.features import AlreadyThere
from pytensor.tensor.blockwise import Blockwise
from pytensor.tensor.variable import TensorConstant

from optdb.host.api.graph import Apply, FunctionGraph, Variable
from optdb.host.api.patching import Wrapper, around

UNKNOWN, TRUE, FALSE, CONFLICT = FactState.UNKNOWN, FactState.TRUE, FactState.FALSE, FactState.CONFLICT


class _Rules:
    """PyTensor's rules for one assumption, by op class."""

    def __init__(self, key: AssumptionKey) -> None:
        self.key = key
        self.begin()

    def begin(self) -> None:
        key = self.key
        self.stronger = [strong for strong, weaker in IMPLIES.items() if key in weaker]
        self.weaker = list(IMPLIES.get(key, ()))
        self.of_constant = CONSTANT_INFER_REGISTRY.get(key)
        self.asks_clients = key in CLIENT_INFER_KEYS
        self._of_op: dict[type, list[Any]] = {}
        self._of_client: dict[type, Any] = {}

    def of_op(self, op_class: type) -> list[Any]:
        found = self._of_op.get(op_class)
        if found is None:
            registered = (ASSUMPTION_INFER_REGISTRY.get((self.key, cls)) for cls in op_class.__mro__)
            found = self._of_op[op_class] = next((rules for rules in registered if rules is not None), [])
        return found

    def of_client(self, op_class: type) -> Any:
        """Return the rule that infers a fact about a variable from its client; None if there is no rule."""
        if op_class not in self._of_client:
            registered = (CLIENT_INFER_REGISTRY.get((self.key, cls)) for cls in op_class.__mro__)
            self._of_client[op_class] = next((rule for rule in registered if rule is not None), None)
        return self._of_client[op_class]


_rules: dict[str, _Rules] = {}
_sizes: list[int] = []


def _renew_rules() -> None:
    registries: tuple[Any, ...] = (
        ASSUMPTION_INFER_REGISTRY,
        CLIENT_INFER_REGISTRY,
        CONSTANT_INFER_REGISTRY,
        *IMPLIES.values(),
    )
    sizes = list(map(len, registries))
    if sizes != _sizes:
        _sizes[:] = sizes
        for rules in _rules.values():
            rules.begin()


class _Facts:
    """What is known for one assumption: states of variables, and variables whose states the rules cannot infer."""

    __slots__ = ("known", "rules", "unknown")

    def __init__(self, key: AssumptionKey) -> None:
        rules = _rules.get(key.name)
        self.rules = _rules.setdefault(key.name, _Rules(key)) if rules is None else rules
        self.known: dict[Variable, FactState] = {}
        self.unknown: set[Variable] = set()


class LeanAssumptions(AssumptionFeature):
    """A faster AssumptionFeature with the same answers."""

    fgraph: Any

    def on_attach(self, fgraph: FunctionGraph) -> None:
        if hasattr(fgraph, "assumption_feature"):
            raise AlreadyThere("AssumptionFeature is already attached")
        self.fgraph = fgraph
        self._facts: dict[str, _Facts] = {}
        self._stale: set[Variable] = set()
        fgraph.assumption_feature = self

    def on_detach(self, fgraph: FunctionGraph) -> None:
        del fgraph.assumption_feature
        self.fgraph = None
        self._facts = {}
        self._stale = set()

    def on_change_input(
        self, fgraph: FunctionGraph, node: Apply, i: int, old_var: Variable, new_var: Variable, reason: Any = None
    ) -> None:
        for facts in self._facts.values():
            state = facts.known.get(old_var)
            if state is None:
                continue
            other = facts.known.get(new_var)
            facts.known[new_var] = state if other is None else FactState.join(state, other)
            facts.unknown.discard(new_var)
            self._stale.add(new_var)
        self._stale.update(node.outputs)

    def on_prune(self, fgraph: FunctionGraph, node: Apply, reason: Any = None) -> None:
        self._stale.difference_update(node.outputs)

    def get(self, var: Variable, key: AssumptionKey) -> FactState:
        """Return what is known about a variable under the assumption `key`.

        Raises
        ------
        ConflictingAssumptionsError
            If one rule infers True and another rule infers False.
        """
        facts = self._facts_of(key)
        if var not in facts.known:
            if self._stale:
                self._forget_unknown()
            if var not in facts.unknown:
                _renew_rules()
        return self._state(facts, var)

    def _facts_of(self, key: AssumptionKey) -> _Facts:
        facts = self._facts.get(key.name)
        if facts is None:
            facts = self._facts[key.name] = _Facts(key)
        return facts

    def _forget_unknown(self) -> None:
        """Forget the unknown states of changed variables and of the variables that depend on changed variables."""
        clients = self.fgraph.clients
        seen = self._stale
        todo = list(seen)
        for var in todo:  # the list grows during the iteration
            for client, _ in clients.get(var, ()):
                for out in client.outputs:
                    if out not in seen:
                        seen.add(out)
                        todo.append(out)
        for facts in self._facts.values():
            facts.unknown -= seen
        self._stale = set()

    def _state(self, facts: _Facts, var: Variable) -> FactState:
        """Return a variable's state; after a change of the graph, `_forget_unknown` must be called first."""
        state = facts.known.get(var)
        if state is None:
            if var in facts.unknown:
                return UNKNOWN
            state = self._infer_from_inputs_on(facts, var)
        if state is CONFLICT:
            raise ConflictingAssumptionsError(f"Conflicting evidence for key {facts.rules.key!r} on {var!r}.")
        return state

    def _infer_from_inputs_on(self, facts: _Facts, var: Variable) -> FactState:
        """Infer the facts about a variable's operands, if there are rules, and then the fact about the variable."""
        known, unknown, rules_of = facts.known, facts.unknown, facts.rules.of_op
        todo = [var]
        while todo:
            top = todo[-1]
            if top in unknown or top in known:
                todo.pop()
                continue
            node = top.owner
            rules = [] if node is None else rules_of(type(node.op))
            if node is not None and rules:
                missing = [inp for inp in node.inputs if inp not in unknown and inp not in known]
                if missing:
                    todo += missing
                    continue
            todo.pop()
            unknown.add(top)  # while this fact is inferred, rules that query it get UNKNOWN
            state = self._infer(facts, top, node, rules)
            if state is not UNKNOWN:
                known[top] = state
                unknown.discard(top)
        return known.get(var, UNKNOWN)

    def _infer(self, facts: _Facts, var: Variable, node: Apply | None, rules: list[Any]) -> FactState:
        """Infer a fact from known facts about operands."""
        of_key = facts.rules
        state = UNKNOWN
        if node is not None:
            state = self._from_owner(facts, var, node, rules)
        elif of_key.of_constant is not None and isinstance(var, TensorConstant):
            state = of_key.of_constant(var)
        if state is UNKNOWN and of_key.asks_clients:
            state = self._from_clients(of_key, var)
        if state is UNKNOWN:
            state = self._from_other_keys(of_key, var)
        if state is CONFLICT:
            raise ConflictingAssumptionsError(
                f"Conflicting evidence for {of_key.key} on {var!r} from owner-inferred rules."
            )
        return state

    def _from_owner(self, facts: _Facts, var: Variable, node: Apply, rules: list[Any]) -> FactState:
        inputs = [self._state(facts, inp) for inp in node.inputs] if rules else []
        for rule in rules:
            outputs = rule(facts.rules.key, node.op, self, self.fgraph, node, inputs)
            if len(outputs) != len(node.outputs):
                raise ValueError(
                    f"an assumption rule returned {len(outputs)} states for {len(node.outputs)} outputs on node "
                    f"{node!r}"
                )
            for state in outputs:
                if state is not UNKNOWN:
                    return outputs[var.index]
        return UNKNOWN

    def _from_clients(self, of_key: _Rules, var: Variable) -> FactState:
        for client, slot in self.fgraph.clients.get(var, ()):
            op = client.op
            if isinstance(op, Blockwise):
                op = op.core_op
            rule = of_key.of_client(type(op))
            state = UNKNOWN if rule is None else rule(of_key.key, op, client, slot)
            if state is not UNKNOWN:
                return state
        return UNKNOWN

    def _from_other_keys(self, of_key: _Rules, var: Variable) -> FactState:
        for strong in of_key.stronger:
            if self._state(self._facts_of(strong), var) is TRUE:
                return TRUE
        for weak in of_key.weaker:
            if self._state(self._facts_of(weak), var) is FALSE:
                return FALSE
        return UNKNOWN


@around
def _exchanging(on_attach: Callable[..., None], self: AssumptionFeature, fgraph: FunctionGraph) -> None:
    if type(self) is not AssumptionFeature:
        return on_attach(self, fgraph)
    self.__class__ = LeanAssumptions
    return self.on_attach(fgraph)


PATCHES = [Wrapper(AssumptionFeature, "on_attach", _exchanging, "rules are looked up once")]
