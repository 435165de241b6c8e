"""The definition of a Theano op: its ``__props__``, and the attributes that ``__props__`` omits.

Theano may replace an op with another op that has equal ``__props__``, although some classes do not list all attributes
in which their instances differ. A definition contains either an inner graph or all attributes except names and derived
values. Two ops are the same if their definitions are equal.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from theano import config
from theano.compile.mode import get_mode
from theano.gof.graph import variables
from theano.ifelse import IfElse
from theano.scalar.basic import Composite, ScalarOp
from theano.scan_module.scan_op import Scan
from theano.tensor.basic import AllocEmpty
from theano.tensor.elemwise import CAReduce, DimShuffle, Elemwise
from theano.tensor.nnet.conv import ConvOp
from theano.tensor.opt import MakeVector
from theano.tensor.subtensor import IncSubtensor

from optdb.host.api import identity
from optdb.host.api.graph import MetaObject, PureOp, Variable


@dataclass(frozen=True)
class InnerGraph:
    """The inner graph of an op; equal graphs have equal values of `hint`, which is cheap to compute."""

    inputs: Sequence[Variable]
    outputs: Sequence[Variable]
    hint: Any


@dataclass(frozen=True)
class Definition:
    """Everything that defines an op besides its class.

    Parameters
    ----------
    props : tuple
        Values of ``__props__``, in their order.
    rest : dict
        The other attributes that distinguish ops of the class, by name.
    label : str or None
        The name of the op; None matches any name.
    """

    props: tuple[Any, ...]
    rest: dict[str, Any]
    label: str | None


#: Classes without ``__props__`` that compare instances by the contents of their attributes.
_SELF_COMPARING = (ScalarOp, Scan, IfElse, ConvOp)

#: Classes whose attribute ``name`` is only a label for display.
_NAMED = (Elemwise, ScalarOp, IfElse)

_DERIVED: dict[type, frozenset[str]] = {Elemwise: frozenset({"ufunc", "nfunc"}), CAReduce: frozenset({"ufunc"})}


def declared(cls: type[PureOp]) -> tuple[str, ...] | None:
    """Return the names of a class's props; None if it declares none."""
    if has_props(cls):
        return cls.__props__
    return () if issubclass(cls, _SELF_COMPARING) else None


def has_props(cls: type[PureOp]) -> bool:
    """Return whether a class or a base class declares ``__props__``."""
    return getattr(cls, "__props__", None) is not None


@functools.cache
def hashes_itself(cls: type[PureOp]) -> bool:
    """Return whether a class defines how its ops are hashed, instead of using ``__props__``."""
    method = identity.own_hash(cls)
    return method is not None and method.__module__ != MetaObject.__module__


def definition(op: PureOp) -> Definition:
    """Return the definition of an op."""
    special = _SPECIAL.get(type(op))
    if special is not None:
        return special(op)
    names = declared(type(op)) or ()
    named = isinstance(op, _NAMED)
    derived = _derived(type(op))  # type: ignore[arg-type]  # the hash of the class, not of its ops
    rest = {
        name: value
        for name, value in vars(op).items()
        # Dunder names are metadata for documentation tools.
        if name not in names and name not in derived and not name.startswith("__") and not (named and name == "name")
    }
    return Definition(tuple([getattr(op, name) for name in names]), rest, getattr(op, "name", None) if named else None)


@functools.cache
def _derived(cls: type) -> frozenset[str]:
    return frozenset().union(*(names for base, names in _DERIVED.items() if issubclass(cls, base)))


def _composite(op: Composite) -> Definition:
    # The op's name and the output types follow from its graph.
    kinds = frozenset(Counter(type(node.op) for node in op.fgraph.apply_nodes).items())
    return Definition((), {"graph": InnerGraph(op.inputs, op.outputs, (op.nin, op.nout, kinds))}, None)


def _scan(op: Scan) -> Definition:
    info = {name: value for name, value in op.info.items() if name != "destroy_map"}
    info["destroy_map"] = dict(op.info.get("destroy_map") or {})  # __eq__ adds an empty destroy_map
    rest = {
        "info": info,
        # The mode may be a name, whose meaning may change.
        "mode": get_mode(op.mode),
        "output_types": op.output_types,
        "graph": InnerGraph(op.inputs, op.outputs, op._hash_inner_graph),
    }
    return Definition((), rest, None)


_SPECIAL: dict[type, Callable[[Any], Definition]] = {Composite: _composite, Scan: _scan}


#: Attributes that the destroy handler reads. Ops without these attributes get them only when code modifies the op.
_OF_MEMORY = ("destroy_map", "view_map", "destroyhandler_tolerate_aliased", "destroyhandler_tolerate_same")


def defining_attributes(op: PureOp, names: Iterable[str]) -> set[str]:
    """Return the names of the attributes from which an op's definition is read."""
    read = {*(declared(type(op)) or ()), *names, *_OF_MEMORY}
    if type(op) in _SPECIAL:
        read |= {"inputs", "outputs", *getattr(op, "info", ())}
    return read


def has_inner_graph(cls: type) -> bool:
    """Return whether the ops of a class are defined by their inner graphs."""
    return cls in _SPECIAL


#: Attributes that Theano adds to variables' tags; these attributes do not distinguish graphs.
_OWN_NOTES = frozenset({"test_value", "trace", "unique_value", "values_eq_approx"})
#: Attributes that Theano adds to uninitialized arrays, such as a Scan's results before its first step.
_OWN_NOTES_OF_EMPTY = _OWN_NOTES | {"nan_guard_mode_check"}


def carries_notes(graph: InnerGraph) -> bool:
    """Return whether other code has set attributes on the ``tag`` of a variable in an inner graph."""
    return any(not _has_own_notes_alone(var) for var in variables(graph.inputs, graph.outputs))


def _has_own_notes_alone(var: Variable) -> bool:
    notes = vars(var.tag)
    if _OWN_NOTES.issuperset(notes):
        return True
    return _OWN_NOTES_OF_EMPTY.issuperset(notes) and _begins_empty(var)


def _begins_empty(var: Variable) -> bool:
    """Return whether a variable is an uninitialized array, of which some elements may have been set since."""
    while var.owner is not None and isinstance(var.owner.op, IncSubtensor):
        var = var.owner.inputs[0]
    return var.owner is not None and isinstance(var.owner.op, AllocEmpty)


def keeps_test_values() -> bool:
    """Return whether Theano computes test values for new nodes."""
    return config.compute_test_value != "off"


#: Maps a class to a function that returns its `settings`. The constructor has no side effects, and returns equal ops
#: for equal arguments and settings.
_REPEATABLE: dict[type, Callable[[], Any]] = {
    DimShuffle: lambda: None,
    Elemwise: lambda: config.openmp,
    MakeVector: lambda: None,
}


def settings(cls: type) -> Any:
    """Return the flags that the constructor of `cls` reads; raise KeyError for classes that are not `is_repeatable`."""
    return _REPEATABLE[cls]()


def is_repeatable(cls: type) -> bool:
    """Return whether equal arguments and `settings` construct equal ops of `cls`, without side effects."""
    return cls in _REPEATABLE
