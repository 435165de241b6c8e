"""The hosts: the compilers that optdb plugs into, Theano 1.0.5 and PyTensor 3.3.

This is the only folder that imports Theano. The rest of the package uses the host through ``api``, which serves one
host per process (see `bind`). Importing this package imports nothing.

- ``api``: the host interface. Its modules are Theano's, unless ``pytensor/api`` has one of the same name and PyTensor
  is the host.
- ``pytensor``: PyTensor's side: its modules of the interface, and faster replacements of its functions.
- ``theano``: Theano's side: its import, C code in batches, and faster replacements of its functions.
"""

from __future__ import annotations

import importlib
import sys
from typing import Any

#: Public names of optdb that take Theano's functions, and their equivalents for PyTensor's.
FOR_PYTENSOR = {
    "SimulatorOCL": 'import optdb.pytensor, and write pytensor.function(inputs, outputs, mode="OPENCL")',
    "disable": "optdb.pytensor.disable()",
    "enable": "optdb.pytensor.enable()",
    "explain": "optdb.pytensor.explain(function)",
    "export": "optdb.pytensor.export(function, path, examples)",
    "mode": "optdb.pytensor.opencl_mode(device)",
}
FOR_PYTENSOR["opencl_backend"] = FOR_PYTENSOR["optimize"] = FOR_PYTENSOR["SimulatorOCL"]

#: The name of the host, once the process is bound to one.
_bound: list[str] = []


class SecondHost(ImportError):
    """A process that is bound to one host requests the other one."""


def bind(host: str) -> None:
    """Make `host` the host of this process, which `optdb.host.api` and the rewrite engine use.

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
            f"optdb's rewrite engine already serves {_bound[0]} in this process, so it cannot serve {host} as well. "
            f"The cure: use {host} in another process",
            name=host,
        )


def bound_host() -> str:
    """Return the host of this process; if there is none yet, bind to the imported one, or else to Theano."""
    if not _bound:
        bind("pytensor" if "pytensor" in sys.modules and "theano" not in sys.modules else "theano")
    return _bound[0]


def import_host() -> None:
    """Import the host together with the additions of `optdb.composition`.

    Folders that need the host call this first: the additions come from their modules, which must be
    complete by then.
    """
    importlib.import_module(bound_host())


def pytensor_hint(name: str) -> str:
    """Return a line that says what to call for PyTensor's functions instead of a public name; '' if unknown."""
    return f"\nFor functions of PyTensor: {FOR_PYTENSOR[name]}" if name in FOR_PYTENSOR else ""


def refuse_pytensor(name: str, function: Any) -> None:
    """Raise TypeError if a function that is passed to a public name is PyTensor's."""
    if type(function).__module__.partition(".")[0] == "pytensor":
        raise TypeError(f"optdb.{name} takes functions of Theano, and {function!r} is PyTensor's.{pytensor_hint(name)}")
