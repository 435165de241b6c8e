"""Defers the import of SciPy's largest packages until Theano uses them.

``scipy.stats`` and ``scipy.signal`` take a third of the time of ``import theano``, which uses one distribution of the
former, and of the latter the convolution in Python. Where Theano's source is translated,
`translation` redirects these imports. Here they are redirected where the source is run as it is.
"""

from __future__ import annotations

import builtins
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import ModuleType
from typing import Any

from optdb.host.importing.compat import versions

__all__ = ["MODULES", "deferred"]

#: Theano's modules that import these packages.
MODULES = ("theano.scalar.basic_scipy", "theano.tensor.nnet.conv", "theano.tensor.nnet.abstract_conv")

_HERE = "optdb.host.importing.compat.modules"

#: Replacements of these imports. SciPy imports ``scipy.stats`` on its first use.
_INSTEAD = {
    "scipy.stats": "scipy",
    "scipy.signal.signaltools": f"{_HERE}.scipy_signaltools",
    "scipy.signal.sigtools": f"{_HERE}.scipy_sigtools",
}


def _import(
    name: str,
    globals: Mapping[str, Any] | None = None,
    locals: Mapping[str, Any] | None = None,
    fromlist: Sequence[str] | None = (),
    level: int = 0,
) -> ModuleType:
    """Replace ``__import__``, with the redirected names."""
    return builtins.__import__(name if level else _INSTEAD.get(name, name), globals, locals, fromlist, level)


@contextmanager
def deferred(module: ModuleType) -> Iterator[None]:
    """Redirect the import statements of a module until the block exits.

    Parameters
    ----------
    module : module
        One of `MODULES`.
    """
    if versions.needs_translation() or versions.installed("scipy") < versions.SCIPY_LAZY:
        yield
        return
    # Only this module's statements are affected: other threads may import the same packages.
    module.__builtins__ = {**vars(builtins), "__import__": _import}
    try:
        yield
    finally:
        module.__builtins__ = vars(builtins)
