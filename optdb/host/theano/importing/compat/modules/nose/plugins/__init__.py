"""``nose.plugins``."""

from optdb.host.theano.importing.compat.modules.nose.plugins import attrib, skip

__all__ = ["attrib", "skip"]
