"""The hosts: the compilers that optdb plugs into, Theano 1.0.5 and PyTensor 3.3.

This is the only folder that imports Theano. The rest of the package takes its words from ``api``, which serves one
host per process (see `bind`). The import of this package imports nothing.

- ``api``: the vocabulary. Its modules are Theano's, unless ``pytensor/api`` has one of the same name and PyTensor is
  the host.
- ``pytensor``: PyTensor's side: its modules of the vocabulary, and replacements that take less time.
- ``theano``: Theano's side: its import, C code in batches, and replacements that take less time.
"""

from __future__ import annotations

import importlib
import sys

#: The name of the host once a process is bound to one.
_bound: list[str] = []


class SecondHost(ImportError):
    """A process that is bound to one host asks for the other one."""


def bind(host: str) -> None:
    """Make `host` the host of this process, which `optdb.host.api` and the rewrite engine serve.

    Parameters
    ----------
    host : {'theano', 'pytensor'}
        The name of the host's package.

    Raises
    ------
    SecondHost
        If the process is bound to the other host.
    """
    if not _bound:
        _bound.append(host)
    if _bound != [host]:
        raise SecondHost(
            f"optdb's rewrite engine serves {_bound[0]} in this process, so it cannot serve {host} as well. "
            f"The cure: use {host} in a process of its own"
        )


def bound_host() -> str:
    """Return the host of this process; where there is none yet, bind to the one that is imported, else to Theano."""
    if not _bound:
        bind("pytensor" if "pytensor" in sys.modules and "theano" not in sys.modules else "theano")
    return _bound[0]


def import_host() -> None:
    """Import the host, and with it what `optdb.composition` adds to it.

    The folders that need it call this before anything else: the additions come from their modules, which must be
    complete by then.
    """
    importlib.import_module(bound_host())
