"""The hosts: the compilers that optdb plugs into, Theano 1.0.5 and PyTensor 3.3.

Only this folder imports Theano. The rest of the package uses the host through ``api``, and a process can use only one
host (see `bind`). Importing this package does not import a host.

- ``api``: the host interface, implemented for Theano. If PyTensor is the host, modules in ``pytensor/api`` replace the
  modules of the same name.
- ``pytensor``: the interface for PyTensor, and faster replacements for PyTensor's functions.
- ``stack_traces``: the stack traces that both hosts record for each variable.
- ``theano``: makes Theano importable, builds its C code in batches, and contains faster replacements for its functions.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from typing import Any

#: Maps each public name of optdb that is specific to Theano to its equivalent for PyTensor.
FOR_PYTENSOR = {
    "SimulatorOCL": 'import optdb.pytensor, and write pytensor.function(inputs, outputs, mode="OPENCL")',
    "disable": "optdb.pytensor.disable()",
    "enable": "optdb.pytensor.enable()",
    "explain": "optdb.pytensor.explain(function)",
    "export": "optdb.pytensor.export(function, path, examples)",
    "mode": "optdb.pytensor.opencl_mode(device)",
}
FOR_PYTENSOR["opencl_backend"] = FOR_PYTENSOR["optimize"] = FOR_PYTENSOR["SimulatorOCL"]

_bound: list[str] = []


class SecondHost(ImportError):
    """Raised if a process that is bound to one host requests the other host."""


def bind(host: str) -> None:
    """Make `host` the one host that `optdb.host.api` and the rewrite engine use in this process.

    Parameters
    ----------
    host : {'theano', 'pytensor'}
        The name of the host's package.

    Raises
    ------
    SecondHost
        If the process is already bound to a different host.
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
    """Return the host of this process; if none is bound, bind PyTensor if only PyTensor is imported, else Theano."""
    if not _bound:
        bind("pytensor" if "pytensor" in sys.modules and "theano" not in sys.modules else "theano")
    return _bound[0]


def import_host() -> None:
    """Import the host, to which `optdb.composition` then adds the features of optdb's packages.

    A package that uses the host must call this function before it imports any of the host's modules. Otherwise,
    `optdb.composition`, which adds parts of the package to the host, would find one of the package's modules only
    partially imported, and fail.
    """
    importlib.import_module(bound_host())


def pytensor_hint(name: str) -> str:
    """Return a sentence that names PyTensor's equivalent of a public name of optdb; '' if there is none."""
    return f"For functions of PyTensor: {FOR_PYTENSOR[name]}" if name in FOR_PYTENSOR else ""


def missing_theano(name: str, error: ImportError) -> str:
    """Return the message shown when a public name of optdb needs Theano but Theano cannot be imported.

    If PyTensor is installed, the message begins with PyTensor's equivalent.
    """
    parts = [str(error), pytensor_hint(name)]
    if name in FOR_PYTENSOR and ("pytensor" in sys.modules or importlib.util.find_spec("pytensor") is not None):
        parts = [f"optdb.{name} takes functions of Theano. {parts[1]}", parts[0]]
    return "\n".join(filter(None, parts))


def refuse_pytensor(name: str, function: Any) -> None:
    """Raise TypeError if `function`, an argument of the public function `name`, is a PyTensor function."""
    if type(function).__module__.partition(".")[0] == "pytensor":
        raise TypeError(
            f"optdb.{name} takes functions of Theano, and {function!r} is PyTensor's.\n{pytensor_hint(name)}"
        )
