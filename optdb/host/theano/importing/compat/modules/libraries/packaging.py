"""``packaging`` with its submodule ``version``, which PyMC3 uses but does not import."""

# ruff: noqa: F401 (PyMC3 uses it)

import packaging
from packaging import version

from optdb.host.theano.importing.compat.modules._falling_back import fall_back_to

__getattr__, __dir__ = fall_back_to(packaging, globals())
