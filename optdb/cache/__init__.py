"""Singleton ops: one object for one op.

::

    Cls(*args) ─▶ construct ─▶ calls: made like this before? ─▶ that op
                     │
                     ▼ no: build it
                   store ◀─ key ◀─ frozen values, inner graphs, host.definition
                     │
                     ▼
                   the op that is like it, or the new one

`install` lets all op classes take part, Theano's and others', now and later;
:class:`SingletonOp` is for those that want it always. Equality is identity
first, and a shared op's hash is computed once (``optdb.host.api.identity``).
"""

from __future__ import annotations

from optdb.host import import_host

import_host()

from optdb.cache.copies import unshared_copy
from optdb.cache.guard import SharedOpChanged
from optdb.cache.plug import install, is_installed, stats, uninstall
from optdb.cache.singleton import SingletonOp
from optdb.cache.stats import Stats

__all__ = [
    "SharedOpChanged",
    "SingletonOp",
    "Stats",
    "install",
    "is_installed",
    "stats",
    "uninstall",
    "unshared_copy",
]
