"""Theano's optimizer databases.

A database maps names and tags to rewriters. When a function is compiled, a :class:`Query` selects rewriters by tag.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

from theano.gof import DB, EquilibriumDB, Query, SequenceDB
from theano.gof.opt import EquilibriumOptimizer, LocalOptimizer, NavigatorOptimizer
from theano.gof.optdb import TopoDB
from theano.misc.ordered_set import OrderedSet

from optdb.host.api.config import config
from optdb.host.api.patching import around

#: The name of the rewriter that adds the shape feature, and the names of rewriters that fail without this feature.
SHAPES_AND_THEIR_USERS = ("ShapeOpt", "local_elemwise_alloc", "local_alloc_elemwise")


def compile_db() -> SequenceDB:
    """Return Theano's main database, ``theano.compile.optdb``."""
    from theano.compile.mode import optdb

    return optdb


def database_names(db: DB) -> list[str]:
    """Return the names of the databases inside a database."""
    return sorted({member.name for members in db.__db__.values() for member in members if isinstance(member, DB)})


@around
def visiting_members_once(
    query: Callable[..., EquilibriumOptimizer], self: EquilibriumDB, *tags: Any, **kwtags: Any
) -> EquilibriumOptimizer:
    """Return a replacement for ``EquilibriumDB.query`` that visits and hashes each member only once."""
    if kwtags or len(tags) != 1 or not isinstance(tags[0], Query):
        return query(self, *tags, **kwtags)
    members = _selected(self, tags[0])
    if any(isinstance(member, DB) for member in members):
        return query(self, *tags)
    return _equilibrium(self, members)


def _selected(db: DB, query: Query) -> list[Any]:
    selected: dict[Any, Any] = {}
    for tag in query.include:
        selected.update(_elements(db.__db__[tag]))
    for tag in query.require:
        required = _elements(db.__db__[tag])
        selected = {member: None for member in selected if member in required}
    for tag in query.exclude:
        for member in _elements(db.__db__[tag]):
            selected.pop(member, None)
    return list(selected)


def _elements(members: OrderedSet) -> dict[Any, Any]:
    """Return a dictionary whose keys are `members` in order, with their hashes cached."""
    return members._OrderedSet__map


def _equilibrium(db: EquilibriumDB, members: list[Any]) -> EquilibriumOptimizer:
    final = [member for member in members if db.__final__.get(member.name)]
    cleanup = [member for member in members if db.__cleanup__.get(member.name)]
    separate = set(map(id, final + cleanup))
    own = [member for member in members if id(member) not in separate]
    optimizer = EquilibriumOptimizer(
        [member for member in own if not isinstance(member, LocalOptimizer)],
        max_use_ratio=config.optdb.max_use_ratio,
        ignore_newtrees=db.ignore_newtrees,
        tracks_on_change_inputs=db.tracks_on_change_inputs,
        failure_callback=NavigatorOptimizer.warn_inplace,
        final_optimizers=final or None,
        cleanup_optimizers=cleanup or None,
    )
    index = _index(db, [member for member in own if isinstance(member, LocalOptimizer)])
    optimizer.local_optimizers_all = index.untracked.copy()
    optimizer.local_optimizers_map = {op: list(rewriters) for op, rewriters in index.tracked.items()}
    return optimizer


class _Index(NamedTuple):
    """Node rewriters indexed by the ops that they track, as stored in an EquilibriumOptimizer."""

    rewriters: list[LocalOptimizer]
    tracks: list[tuple[Any, ...] | None]
    untracked: list[LocalOptimizer]
    tracked: dict[Any, list[LocalOptimizer]]


#: A cache of indexes: making an index hashes all tracked ops, which takes most of a query's time.
_indexes: WeakKeyDictionary[DB, _Index] = WeakKeyDictionary()


def _index(db: DB, rewriters: list[LocalOptimizer]) -> _Index:
    tracks = [None if ops is None else tuple(ops) for ops in (rewriter.tracks() for rewriter in rewriters)]
    index = _indexes.get(db)
    if index is None or index.rewriters != rewriters or index.tracks != tracks:
        index = _indexes[db] = _index_by_tracks(rewriters, tracks)
    return index


def _index_by_tracks(rewriters: list[LocalOptimizer], tracks: list[tuple[Any, ...] | None]) -> _Index:
    index = _Index(rewriters, tracks, [], {})
    for rewriter, ops in zip(rewriters, tracks, strict=True):
        if ops is None:
            index.untracked.append(rewriter)
            continue
        for op in ops:
            index.tracked.setdefault(op, []).append(rewriter)
    return index
