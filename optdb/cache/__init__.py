"""Singleton ops: equal ops are one object (interning).

::

    Cls(*args) ─▶ construct ─▶ an equal call before? ──▶ its op
                     │
                     ▼ no: build it
                   store ◀─ key ◀─ frozen values, inner graphs, host.definition
                     │
                     ▼
                   the equal op, or the new one

`install` enables sharing for all op classes of Theano and of other libraries, including classes defined later. Ops of
classes derived from :class:`SingletonOp` are always shared.
"""

from __future__ import annotations

from optdb.host import import_host

import_host()

from optdb.cache.guard import SharedOpChanged
from optdb.cache.op_copies import unshared_copy
from optdb.cache.plug import install, is_installed, stats, uninstall
from optdb.cache.singleton import SingletonOp
from optdb.cache.stats import Stats

__all__ = ["SharedOpChanged", "SingletonOp", "Stats", "install", "is_installed", "stats", "uninstall", "unshared_copy"]
