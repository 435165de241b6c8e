"""Defers the import of large packages until Theano uses them.

SciPy, setuptools and ``numpy.distutils`` take most of the time of ``import theano``, although Theano uses only a small
part of them. If Theano's source is translated, `translation` redirects the imports of these packages; otherwise, this
module does.
"""

from __future__ import annotations

import builtins
import functools
import importlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import ModuleType
from typing import Any

from optdb.host.theano.importing.compat import versions

#: Those of Theano's modules that import the deferred packages and need no other changes on import.
MODULES = (
    "theano.gof.opt",
    "theano.scalar.basic_scipy",
    "theano.tensor.blas",
    "theano.tensor.nnet.abstract_conv",
    "theano.tensor.nnet.conv",
)

_HERE = "optdb.host.theano.importing.compat.modules"

#: Maps each module in a statement ``import a.b`` to the module that the statement binds to ``a``.
_BOUND = {
    "distutils.spawn": f"{_HERE}.distutils",
    "distutils.sysconfig": f"{_HERE}.distutils",
    "numpy.distutils": f"{_HERE}.numpy",
    "numpy.distutils.__config__": f"{_HERE}.numpy",
    "pdb": f"{_HERE}.pdb",
    "scipy.linalg.blas": f"{_HERE}.scipy",
}

#: Added to `_BOUND` for SciPy `versions.SCIPY_LAZY` and later, which import these packages on first use.
_BOUND_IF_LAZY = dict.fromkeys(("scipy.special", "scipy.stats"), f"{_HERE}.scipy")

#: Maps the module ``a.b`` in a statement ``from a.b import c`` to the module that replaces it.
_SOURCES = {"scipy.signal.signaltools": f"{_HERE}.scipy_signal", "scipy.signal.sigtools": f"{_HERE}.scipy_signal"}


@functools.cache
def _bound() -> Mapping[str, str]:
    return {**_BOUND, **_BOUND_IF_LAZY} if versions.installed("scipy") >= versions.SCIPY_LAZY else _BOUND


def _import(
    name: str,
    globals: Mapping[str, Any] | None = None,
    locals: Mapping[str, Any] | None = None,
    fromlist: Sequence[str] | None = (),
    level: int = 0,
) -> ModuleType:
    if not level and not fromlist and name in _bound():
        return importlib.import_module(_bound()[name])
    if not level and fromlist:
        name = _SOURCES.get(name, name)
    return builtins.__import__(name, globals, locals, fromlist, level)


@contextmanager
def deferred(module: ModuleType) -> Iterator[None]:
    """Redirect the import statements of `module` in the block."""
    if versions.needs_translation():
        yield
        return
    # Redirect only this module's imports, because other threads may import the same packages.
    vars(module)["__builtins__"] = {**vars(builtins), "__import__": _import}
    try:
        yield
    finally:
        vars(module)["__builtins__"] = vars(builtins)
