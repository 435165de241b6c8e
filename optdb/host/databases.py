"""Optimizer databases: Theano's own, under one roof.

A database maps names and tags to rewriters; a :class:`Query` picks some of
them when a function is compiled.  ``compile_db()`` is the database of which
every Theano mode is a query.
"""

from __future__ import annotations

from theano.gof import DB, EquilibriumDB, Query, SequenceDB
from theano.gof.optdb import TopoDB

__all__ = [
    "DB",
    "EquilibriumDB",
    "Query",
    "SequenceDB",
    "TopoDB",
    "compile_db",
]


def compile_db() -> SequenceDB:
    """Return Theano's main database, ``theano.compile.optdb``."""
    from theano.compile.mode import optdb

    return optdb
