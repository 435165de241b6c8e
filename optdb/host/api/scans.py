"""Shares equal Scan ops.

Scan has no metaclass that could share instances. ``__new__`` therefore initializes a new Scan and returns the shared op
that equals it, and ``__init__`` does nothing. A Scan keeps the compiled function of its loop, including the function's
storage, in an attribute. Graphs must not share this storage, so the thunks of each graph use a copy of the op. The
shared op keeps the function that was compiled last.
"""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable
from typing import Any

from theano.scan_module.scan_op import Scan

from optdb.host.api.graph import Apply, FunctionGraph, PureOp
from optdb.host.api.opcopies import copy_to_change
from optdb.host.api.patching import Patch, PatchGroup, Wrapper, around

_stock_init = Scan.__init__
_stock_make_thunk = Scan.make_thunk

#: Takes a new Scan, and returns the shared Scan that equals it; None while Scans are not shared.
_share: Callable[[PureOp], PureOp] | None = None


def _new(cls: type[Scan], *args: Any, **kwargs: Any) -> PureOp:
    """Return an uninitialized Scan, or a shared Scan that is already initialized."""
    op = object.__new__(cls)
    # Return an uninitialized object for copying and unpickling, which pass no arguments, and for subclasses, which have
    # their own constructors.
    if _share is None or cls is not Scan or not (args or kwargs):
        return op
    _stock_init(op, *args, **kwargs)
    return _share(op)


def _init(self: Scan, *args: Any, **kwargs: Any) -> None:
    """Initialize an instance of a subclass; an instance of Scan itself was already initialized by `_new`."""
    if type(self) is not Scan:
        _stock_init(self, *args, **kwargs)


#: Maps a graph to a dict from the ids of its ops to the copies that its thunks use.
_thunk_copies: weakref.WeakKeyDictionary[FunctionGraph, dict[int, Scan]] = weakref.WeakKeyDictionary()


@around
def _on_a_copy(make_thunk: Callable[..., Any], self: Scan, node: Apply, *args: Any, **kwargs: Any) -> Any:
    scan_copy = _thunk_copy_of(self, node)
    thunk = make_thunk(scan_copy, node, *args, **kwargs)
    vars(self).update(vars(scan_copy))
    return thunk


def _thunk_copy_of(op: Scan, node: Apply) -> Scan:
    fgraph = getattr(node, "fgraph", None)
    copies = {} if fgraph is None else _thunk_copies.setdefault(fgraph, {})
    scan_copy = copies.get(id(op))
    if scan_copy is None:
        scan_copy = copies[id(op)] = _unshared(op)
        vars(scan_copy).pop("fn", None)
    return scan_copy


def _unshared(op: Scan) -> Scan:
    scan_copy = copy_to_change(op)
    # Copy the inner lists: if two of them were the same object, making the thunk would remove elements from that list
    # twice, and fail.
    scan_copy.mit_mot_out_slices = [list(taps) for taps in scan_copy.mit_mot_out_slices]
    return scan_copy


def inner_function(node: Apply) -> Any:
    """Return the function that runs a node's loop; the node must have a thunk."""
    fgraph = getattr(node, "fgraph", None)
    scan_copy = None if fgraph is None else _thunk_copies.get(fgraph, {}).get(id(node.op))
    op: Any = scan_copy or node.op
    return op.fn


def thunk_around(function: Any, node: Apply, storage_map: Any, compute_map: Any) -> Any:
    """Return a thunk that runs a node's loop in Python, with `function` instead of the op's function.

    `function` needs the attributes of ``theano.Function`` that a Scan uses.
    """
    assert isinstance(node.op, Scan)
    scan_copy = _unshared(node.op)
    scan_copy.fn = function
    return _stock_make_thunk(scan_copy, node, storage_map, compute_map, [], impl="py")


# Never uninstall this group: after ``Scan.__new__`` is deleted, CPython would pass the constructor's arguments to
# ``object.__new__``, which rejects them.
_constructor = PatchGroup(
    "Construction of Scans",
    "from the first optdb.cache.install() on",
    "nothing: while the op cache is not installed, it behaves like Theano's",
    [Patch(Scan, "__new__", staticmethod(_new), "Scan has no metaclass that could share its instances")],
)
_patches = PatchGroup(
    "Singleton Scans",
    "from optdb.cache.install() on",
    "optdb.cache.uninstall()",
    [
        Patch(Scan, "__init__", _init, "a shared Scan is already initialized"),
        Wrapper(Scan, "make_thunk", _on_a_copy, "functions that share a Scan must not share its inner function"),
    ],
)


def install(share: Callable[[PureOp], PureOp]) -> None:
    """Make ``Scan(...)`` return the result of `share` for the new Scan."""
    global _share
    _share = share
    _constructor.install()
    _patches.install()


def uninstall() -> None:
    """Make ``Scan(...)`` return a new Scan each time, as in Theano."""
    global _share
    _share = None
    _patches.uninstall()
