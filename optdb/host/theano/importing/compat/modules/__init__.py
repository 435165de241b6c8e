"""The targets of redirected imports in Theano's modules.

Each module replaces a module of Python, NumPy or SciPy with the same name, and provides all its names. It defines names
that the original no longer has or whose meaning has changed. `translation.REDIRECTED` maps the modules that Theano
imports to these modules; `_small_modules` creates the modules without a file.
"""

from optdb.host.theano.importing.compat.modules import _small_modules  # noqa: F401
