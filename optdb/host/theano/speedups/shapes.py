"""Lazy shape inference.

Theano's ShapeFeature builds a symbolic shape for every variable, and merges shapes at every replacement, although most
shapes are never read. :class:`LazyShapeFeature` only records a *promise* of each shape, with references to the promises
on which the shape depends. A shape that is read later is the one that Theano would have built at the time of the
promise.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, SupportsIndex

from theano.compile.ops import Shape_i
from theano.gof.graph import ancestors
from theano.tensor import TensorType
from theano.tensor.basic import constant
from theano.tensor.opt import ShapeFeature, ShapeOptimizer

from optdb.host.api.graph import Apply, FunctionGraph, InconsistencyError, Variable, reachable
from optdb.host.api.patching import Patch
from optdb.host.api.shallow_pickles import is_pickled_in_order
from optdb.host.api.testvalues import shape_test_values

if TYPE_CHECKING:
    from _collections_abc import dict_items, dict_values

_UNKNOWN = object()


class _Promise:
    """A shape that is computed on demand and then stored in ``value``."""

    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value: Any = _UNKNOWN

    def needed(self) -> list[_Promise]:
        return []

    def work_out(self, feature: LazyShapeFeature) -> Any:
        """Return the value; the promises that it needs must already have values."""
        raise NotImplementedError


class _Given(_Promise):
    __slots__ = ()

    def __init__(self, value: Any) -> None:
        self.value = value


_NO_LENGTHS = _Given(())


class _Leaf(_Promise):
    __slots__ = ("var",)

    def __init__(self, var: Variable) -> None:
        super().__init__()
        self.var = var

    def work_out(self, feature: LazyShapeFeature) -> Any:
        return feature.as_theano({}, ShapeFeature.init_r, self.var)[self.var]


class _Inferred(_Promise):
    __slots__ = ("inputs", "node")

    def __init__(self, node: Apply, inputs: list[_Promise]) -> None:
        super().__init__()
        self.node = node
        self.inputs = inputs

    def needed(self) -> list[_Promise]:
        return self.inputs

    def work_out(self, feature: LazyShapeFeature) -> Any:
        node, inputs = self.node, self.inputs
        input_shapes = {var: feature.renewed(promise.value) for var, promise in zip(node.inputs, inputs, strict=True)}
        shapes = feature.as_theano(input_shapes, ShapeFeature.on_import, feature.fgraph, node, "shape asked")
        self.inputs = []  # a computed promise does not depend on other promises
        return shapes


class _Output(_Promise):
    __slots__ = ("inferred", "var")

    def __init__(self, inferred: _Inferred, var: Variable) -> None:
        super().__init__()
        self.inferred = inferred
        self.var = var

    def needed(self) -> list[_Promise]:
        return [self.inferred]

    def work_out(self, feature: LazyShapeFeature) -> Any:
        return self.inferred.value[self.var]


class _Merged(_Promise):
    """The shape of a variable that has the same shape as another variable."""

    __slots__ = ("other", "other_var", "promise", "var")

    def __init__(self, var: Variable, promise: _Promise, other_var: Variable, other: _Promise) -> None:
        super().__init__()
        self.var = var
        self.promise = promise
        self.other_var = other_var
        self.other = other

    def needed(self) -> list[_Promise]:
        return [self.promise, self.other]

    def work_out(self, feature: LazyShapeFeature) -> Any:
        shapes = {self.other_var: feature.renewed(self.other.value), self.var: feature.renewed(self.promise.value)}
        merged = feature.as_theano(shapes, ShapeFeature.update_shape, self.var, self.other_var)[self.var]
        return _without_itself(self.var, self.promise.value, merged)


def _without_itself(var: Variable, shape: Any, merged: Any) -> Any:
    """Return the shape `merged` of `var`, with lengths from `shape` where `merged` reads `var` itself.

    Otherwise, replacing a reshape with its input, which has the same shape, would create a cycle.
    """
    if shape is None or merged is None:
        return merged
    return tuple(
        own_length if length is not own_length and _depends_on(length, var) else length
        for own_length, length in zip(shape, merged, strict=True)
    )


def _depends_on(length: Variable, var: Variable) -> bool:
    return length.owner is not None and var in ancestors([length])


class _Shapes(dict):
    """The dictionary ``shape_of``, which stores promises and returns shapes."""

    def __init__(self, feature: LazyShapeFeature) -> None:
        super().__init__()
        self._feature = feature

    def __getitem__(self, var: Variable) -> Any:
        return self._feature.keep(super().__getitem__(var))

    def __setitem__(self, var: Variable, shape: Any) -> None:
        super().__setitem__(var, shape if isinstance(shape, _Promise) else _Given(shape))

    def get(self, var: Variable, default: Any = None) -> Any:
        return self[var] if var in self else default  # noqa: SIM401  this is the implementation of get

    def promise(self, var: Variable) -> _Promise:
        return super().__getitem__(var)

    def meanwhile(self, var: Variable) -> Any:
        """Return a shape of `var` that does not depend on the shape that is being computed."""
        return self._feature.keep(self._feature.without_waiting(var, self.promise(var)))

    def _inferred(self) -> dict:
        return {var: self[var] for var in self}

    def values(self) -> dict_values[Any, Any]:
        return self._inferred().values()

    def items(self) -> dict_items[Any, Any]:
        return self._inferred().items()


class _Scratch(dict):
    """A ``shape_of`` that computes missing shapes, for one call to a Theano method."""

    def __init__(self, shape_of: dict, shapes: _Shapes) -> None:
        super().__init__(shape_of)
        self._shapes = shapes

    def __missing__(self, var: Variable) -> Any:
        return self._shapes.meanwhile(var)


#: The attributes that a feature has once it has recorded its graph.
_OF_GRAPH = frozenset(
    {"lscalar_one", "shape_of", "scheduled", "shape_of_reverse_index", "_renamed", "_at_work", "_asking"}
)


class LazyShapeFeature(ShapeFeature):
    """A ShapeFeature that computes shapes on demand.

    When a length is replaced, Theano replaces this length in existing shapes; ``_renamed`` records the replacement for
    shapes that are computed later.
    """

    def __init__(self) -> None:
        self.fgraph: FunctionGraph | None = None

    def on_attach(self, fgraph: FunctionGraph) -> None:
        assert not hasattr(fgraph, "shape_feature")
        fgraph.shape_feature = self
        self._record(fgraph)

    def _record(self, fgraph: FunctionGraph) -> None:
        self.fgraph = fgraph
        self.lscalar_one = constant(1, dtype="int64")
        self.shape_of = _Shapes(self)
        self.scheduled: dict[Apply, Variable] = {}
        self.shape_of_reverse_index: dict[Variable, set[Variable]] = {}
        self._renamed: dict[Variable, Variable] = {}
        self._at_work: set[_Promise] = set()
        self._asking: dict[Variable, dict[Apply, None]] = {}
        for node in fgraph.toposort():
            self.on_import(fgraph, node, "on_attach")

    def on_detach(self, fgraph: FunctionGraph) -> None:
        super().on_detach(fgraph)
        self.fgraph = None

    # -- events, which are only recorded

    def on_import(self, fgraph: FunctionGraph, node: Apply, reason: Any) -> None:
        if isinstance(node.op, Shape_i):
            self._asking.setdefault(node.inputs[0], {})[node] = None
        shapes = self.shape_of
        if node.outputs[0] in shapes:  # the node was removed, and is imported again
            return
        for var in node.inputs:
            self.init_r(var)
        inferred = None
        for out in node.outputs:
            if _has_no_lengths(out):
                shapes[out] = _NO_LENGTHS
                continue
            if inferred is None:
                inferred = _Inferred(node, [shapes.promise(var) for var in node.inputs])
            shapes[out] = _Output(inferred, out)

    def on_prune(self, fgraph: FunctionGraph, node: Apply, reason: Any) -> None:
        if isinstance(node.op, Shape_i):
            self._asking.get(node.inputs[0], {}).pop(node, None)

    def on_change_input(
        self, fgraph: FunctionGraph, node: Apply | str, i: int, old: Variable, new: Variable, reason: Any = None
    ) -> None:
        self.init_r(new)
        self.update_shape(new, old)
        if not isinstance(node, str) and isinstance(node.op, Shape_i):
            self._asking.get(old, {}).pop(node, None)
            self._asking.setdefault(new, {})[node] = None
            self._schedule(node, new)
        for shape_node in self._asking.get(old, ()):
            self._schedule(shape_node, new)
        for shape_node in [k for k, scheduled in self.scheduled.items() if scheduled is old]:
            del self.scheduled[shape_node]
        self._rename(old, new)

    def _schedule(self, node: Apply, new: Variable) -> None:
        """Schedule the replacement of `node`, which reads a length of a replaced variable, by the length of `new`."""
        assert isinstance(node.op, Shape_i)
        length = self.shape_of[new][node.op.i]
        owner = length.owner
        if owner is node:
            return
        if owner is not None and owner.op == node.op and owner.inputs[0] is node.inputs[0]:
            return
        if node.outputs[0] in ancestors([length]):
            raise InconsistencyError(f"This substitution would insert a cycle in the graph: {node} needs {length}")
        self.scheduled[node] = new

    def _rename(self, old: Variable, new: Variable) -> None:
        # If `new` depends on `old`, keep `old`, because a shape that contains `new` would create a cycle.
        if not _may_be_length(old) or _uses(new, old):
            return
        self._renamed.pop(new, None)
        self._renamed[old] = new
        for var in list(self.shape_of_reverse_index.pop(old, ())):
            promise = self.shape_of.promise(var)
            if promise.value is _UNKNOWN or promise.value is None:
                continue
            for k, length in enumerate(promise.value):
                if length is old:
                    self.set_shape_i(var, k, new)

    # -- called by Theano's methods

    def init_r(self, r: Variable) -> None:
        """Ensure that `r` has a shape or a promise of its shape."""
        if r not in self.shape_of:
            self.shape_of[r] = _NO_LENGTHS if _has_no_lengths(r) else _Leaf(r)

    def update_shape(self, r: Variable, other_r: Variable) -> None:
        """Record that `r` has the shape of `other_r`."""
        promise, other_promise = self.shape_of.promise(r), self.shape_of.promise(other_r)
        again = isinstance(promise, _Merged) and promise.other is other_promise
        if promise is not other_promise and not again:
            self.shape_of[r] = _Merged(r, promise, other_r, other_promise)

    # -- promises

    def keep(self, promise: _Promise) -> Any:
        """Return the value of a promise, after computing the promises that it needs."""
        if promise.value is _UNKNOWN:
            # Shapes may be computed after the optimization, for example for a pickle.
            with shape_test_values():
                self._work_out(promise)
        return promise.value

    def _work_out(self, promise: _Promise) -> None:
        todo = [promise]
        while todo:
            current = todo[-1]
            if current.value is not _UNKNOWN:
                todo.pop()
                continue
            missing = [needed for needed in current.needed() if needed.value is _UNKNOWN]
            if missing:
                todo.extend(missing)
                continue
            self._at_work.add(current)
            try:
                current.value = current.work_out(self)
            finally:
                self._at_work.discard(current)
            todo.pop()

    def without_waiting(self, var: Variable, promise: _Promise) -> _Promise:
        """Return a promise for `var` that does not depend on the shape that is being computed.

        This is needed if a node reads a length from a variable that later replaces the node's own output.
        """
        while self._waits(promise):
            promise = promise.promise if isinstance(promise, _Merged) else _Leaf(var)
        return promise

    def _waits(self, promise: _Promise) -> bool:
        unknown = reachable([promise], lambda known: known.needed() if known.value is _UNKNOWN else ())
        return not self._at_work.isdisjoint(unknown)

    def renewed(self, shape: Any) -> Any:
        """Return `shape` with the current replacements of those lengths that were replaced after `shape` was built."""
        if not self._renamed or shape is None:
            return shape
        return tuple(map(self._now, shape))

    def _now(self, length: Variable) -> Variable:
        while length in self._renamed:
            length = self._renamed[length]
        return length

    def as_theano(self, shape_of: dict[Variable, Any], method: Any, *args: Any) -> dict[Variable, Any]:
        """Run a Theano method with a copy of `shape_of`; return the copy, to which the method adds entries."""
        shapes = self.shape_of
        scratch = self.shape_of = _Scratch(shape_of, shapes if isinstance(shapes, _Shapes) else shapes._shapes)
        try:
            method(self, *args)
        finally:
            self.shape_of = shapes
        return dict(scratch)

    def __getattr__(self, name: str) -> Any:
        """Record the graph when an unpickled feature is first used."""
        fgraph = self.__dict__.get("fgraph")
        if name not in _OF_GRAPH or fgraph is None:
            raise AttributeError(name)
        self._record(fgraph)
        return self.__dict__[name]

    def __reduce_ex__(self, protocol: SupportsIndex) -> str | tuple[Any, ...]:
        """Pickle as Theano's own ShapeFeature with all shapes or, if the graph is pickled in order, without shapes."""
        if self.fgraph is not None and is_pickled_in_order(self.fgraph):
            return _for_graph, (self.fgraph,)
        stock = ShapeFeature.__new__(ShapeFeature)
        for name in ("lscalar_one", "scheduled", "shape_of_reverse_index"):
            if hasattr(self, name):
                setattr(stock, name, getattr(self, name))
        stock.shape_of = dict(self.shape_of.items())
        return stock.__reduce_ex__(1)


def _for_graph(fgraph: FunctionGraph) -> LazyShapeFeature:
    """Return a feature that records `fgraph` on first use, because the unpickled graph may still be incomplete now."""
    feature = LazyShapeFeature()
    feature.fgraph = fgraph
    return feature


def _has_no_lengths(var: Variable) -> bool:
    return isinstance(var.type, TensorType) and not var.type.ndim


def _uses(var: Variable, other: Variable) -> bool:
    return var.owner is not None and other in var.owner.inputs


def _may_be_length(var: Variable) -> bool:
    return getattr(var.type, "ndim", None) == 0 and var.type.dtype.startswith(("int", "uint"))


def _attach(self: ShapeOptimizer, fgraph: FunctionGraph) -> None:
    if not hasattr(fgraph, "shape_feature"):
        fgraph.attach_feature(LazyShapeFeature())


PATCHES = [Patch(ShapeOptimizer, "add_requirements", _attach, "shapes are computed on demand")]
