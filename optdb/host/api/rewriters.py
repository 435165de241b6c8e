"""Theano's rewriters, and rewriters made from plain functions with the newer signature ``(fgraph, node)``.

A *node rewriter* (LocalOptimizer) returns replacements for a node's outputs; a *graph rewriter* (Optimizer) changes a
whole graph.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Sequence
from typing import Any

from theano.gof.opt import (
    EquilibriumOptimizer,
    FromFunctionLocalOptimizer,
    LocalOptGroup,
    LocalOptimizer,
    MergeFeature,
    MergeOptimizer,
    NavigatorOptimizer,
    Optimizer,
    SeqOptimizer,
    TopoOptimizer,
)
from theano.gof.toolbox import ReplaceValidate
from theano.scalar.basic import ScalarOp
from theano.tensor import basic as tensor_ops
from theano.tensor.elemwise import Elemwise

from optdb.host.api.graph import Apply, FunctionGraph, PureOp, Variable
from optdb.host.api.testvalues import without_test_values
from optdb.host.api.traces import copy_trace

NodeFunction = Callable[[FunctionGraph, Apply], "Sequence[Variable] | dict | bool | None"]


class FunctionNodeRewriter(LocalOptimizer):
    """A node rewriter made from a plain function ``f(fgraph, node)``.

    Parameters
    ----------
    function : callable
        Returns the replacements for ``node.outputs`` (a list of Variables, or a dict from old to new Variables), or
        None or False if it does not apply.
    tracks : sequence of Op classes or Op instances, optional
        The ops to call `function` for; None for all ops.
    requirements : sequence of callables
        Called with the FunctionGraph before rewriting, to attach features.

    Raises
    ------
    TypeError
        If `function` does not take ``(fgraph, node)``, or if `tracks` is not a list.
    ValueError
        If `tracks` is empty, or contains a scalar op or something that is not an op.
    """

    def __init__(
        self,
        function: NodeFunction,
        tracks: Sequence[Any] | None = None,
        requirements: Sequence[Callable[[FunctionGraph], None]] = (),
    ) -> None:
        self.__name__ = getattr(function, "__name__", type(function).__name__)
        _check_signature(function, self.__name__)
        _check_tracks(tracks, self.__name__)
        self.rewrite = function
        self.__doc__ = function.__doc__
        self._tracks = None if tracks is None else list(tracks)
        self.requirements = tuple(requirements)

    def tracks(self) -> list[Any] | None:
        return self._tracks

    def transform(self, node: Apply) -> Any:
        """Call the function if it tracks the node's op; Theano calls this method."""
        if self._tracks is not None and node.op not in self._tracks and type(node.op) not in self._tracks:
            return False
        return self.rewrite(node.fgraph, node)

    def add_requirements(self, fgraph: FunctionGraph) -> None:
        for require in self.requirements:
            require(fgraph)

    def __call__(self, fgraph: FunctionGraph, node: Apply) -> Any:
        return self.rewrite(fgraph, node)

    def __str__(self) -> str:
        return self.__name__


class GraphRewriter(Optimizer):
    """A rewriter that changes a whole device graph with :func:`replace_all`; subclasses define `rewrite`."""

    def rewrite(self, fgraph: FunctionGraph) -> Any:
        """Change a graph. New variables get no test values, because device variables cannot have any.

        Parameters
        ----------
        fgraph : FunctionGraph
            The graph, which has Theano's ReplaceValidate feature.

        Returns
        -------
        object
            The profile that Theano's ``profile_optimizer`` records, or None.
        """
        raise NotImplementedError(f"{type(self).__name__} does not define rewrite(fgraph)")

    def add_requirements(self, fgraph: FunctionGraph) -> None:
        """Attach the feature that validates replacements.

        Parameters
        ----------
        fgraph : FunctionGraph
            The graph.
        """
        fgraph.attach_feature(ReplaceValidate())

    @without_test_values()
    def apply(self, fgraph: FunctionGraph) -> Any:
        """Change a graph; this is the method that Theano calls.

        Parameters
        ----------
        fgraph : FunctionGraph
            The graph.

        Returns
        -------
        object
            What `rewrite` returns.
        """
        return self.rewrite(fgraph)

    def replace(self, fgraph: FunctionGraph, pairs: Sequence[tuple[Variable, Variable]]) -> None:
        """Call `replace_all` with the rewriter as the reason.

        Parameters
        ----------
        fgraph : FunctionGraph
            The graph.
        pairs : sequence of (Variable, Variable)
            Old variables and their replacements.
        """
        replace_all(fgraph, pairs, reason=type(self).__name__)


def replace_all(fgraph: FunctionGraph, pairs: Sequence[tuple[Variable, Variable]], reason: str) -> None:
    """Replace the first variable of each pair with the second, for all pairs at once, and copy stack traces.

    Raises
    ------
    InconsistencyError
        If the new graph would be invalid. The graph is then unchanged.
    """
    if not pairs:
        return
    for old, new in pairs:
        copy_trace(old, new)
    fgraph.replace_all_validate(list(pairs), reason=reason)


def rebuild(node: Apply, inputs: list[Variable]) -> Apply:
    """Return a copy of `node` with other inputs of the same types, or `node` itself if the inputs are unchanged."""
    if all(new is old for new, old in zip(inputs, node.inputs, strict=True)):
        return node
    return node.clone_with_new_inputs(inputs)


def _check_signature(function: NodeFunction, name: str) -> None:
    try:
        inspect.signature(function).bind("fgraph", "node")
    except TypeError as error:
        raise TypeError(
            f"the node rewriter '{name}' must take (fgraph, node): {error}. For a function of (node) alone, as in "
            "Theano, use theano.gof.local_optimizer."
        ) from None


def _check_tracks(tracks: Sequence[Any] | None, name: str) -> None:
    if tracks is None:
        return
    if not isinstance(tracks, Collection) or isinstance(tracks, str):
        raise TypeError(
            f"tracks= of the node rewriter '{name}' takes a list, not {tracks!r}: write tracks=[op], not tracks=op"
        )
    if len(tracks) == 0:
        raise ValueError(f"the node rewriter '{name}' tracks no op: use tracks=None for all nodes")
    for track in tracks:
        is_op_class = isinstance(track, type) and issubclass(track, PureOp)
        if not is_op_class and not isinstance(track, PureOp):
            raise ValueError(f"the node rewriter '{name}' tracks {track!r}: tracks are Op classes or Op instances")
        fault = scalar_op_fault(track)
        if fault is not None:
            raise ValueError(f"the node rewriter '{name}' tracks {fault}")


def scalar_op_fault(track: Any) -> str | None:
    """If `track` is a scalar op or its class, return why no node has that op, and what to track instead; else None."""
    if isinstance(track, ScalarOp):
        shown, instead = str(track), [f"tt.{name}" for name in _elemwise_names(track)[:1]]
    elif isinstance(track, type) and issubclass(track, ScalarOp):
        shown, instead = track.__name__, []
    else:
        return None
    cure = ", or ".join([*instead, "Elemwise, and test op.scalar_op in the function"])
    return (
        f"the scalar op {shown}, but the nodes of a graph have Elemwise ops, which contain it.\nThe cure: write {cure}"
    )


def _elemwise_names(scalar_op: ScalarOp) -> list[str]:
    return [
        name
        for name, op in vars(tensor_ops).items()
        if isinstance(op, Elemwise) and op.scalar_op == scalar_op and not op.inplace_pattern and name[0] != "_"
    ]


def transform_of(rewriter: LocalOptimizer) -> Callable[[Apply], Any]:
    """Return a rewriter's transformation as a function of a node."""
    if isinstance(rewriter, FunctionNodeRewriter):
        rewrite = rewriter.rewrite
        return lambda node: rewrite(node.fgraph, node)
    return rewriter.transform


def trusted_tracks(rewriter: Any) -> list[Any] | None:
    """Return the ops that a rewriter or a group tracks; None if it may apply to other ops.

    Only rewriters made from Theano's own functions are trusted. The tracked ops of other rewriters may be wrong,
    because Theano's passes ignore them.
    """
    members = rewriter.opts if type(rewriter) is LocalOptGroup else [rewriter]
    tracks: list[Any] = []
    for member in members:
        is_theanos = type(member) is FromFunctionLocalOptimizer and member.transform.__module__.startswith("theano.")
        member_tracks = member.tracks() if is_theanos else None
        if member_tracks is None:
            return None
        tracks.extend(member_tracks)
    return tracks


def report_failure(error: Exception, navigator: Any, pairs: Sequence[Any], rewriter: Any, node: Apply) -> None:
    """Handle a rewriter's failure according to ``config.on_opt_error``."""
    NavigatorOptimizer.warn(error, navigator, pairs, rewriter, node)
