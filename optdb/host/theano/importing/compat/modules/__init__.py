"""The targets of redirected imports in Theano's modules.

Each module replaces the module of the same name in Python, NumPy or SciPy, and provides all names of the original. It
defines names that the original no longer has or whose meaning has changed. `translation.REDIRECTED` maps the modules
that Theano imports to these modules; `_small_modules` creates the modules without a file.
"""

from optdb.host.theano.importing.compat.modules import _small_modules  # noqa: F401
