"""The targets of redirected imports of Theano's modules.

Each module here replaces a module of Python, NumPy or SciPy, has the same name, and provides all names of the original.
The replacements define names that the original has lost, or whose meaning has changed. `translation.REDIRECTED` maps
the modules that Theano imports to the modules here; `_small_modules` makes those that are not files.
"""

from optdb.host.theano.importing.compat.modules import _small_modules  # noqa: F401
