"""``nose.plugins``."""

from optdb.host.compat.modules.nose.plugins import attrib, skip

__all__ = ["attrib", "skip"]
