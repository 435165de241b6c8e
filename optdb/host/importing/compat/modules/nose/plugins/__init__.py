"""``nose.plugins``."""

from optdb.host.importing.compat.modules.nose.plugins import attrib, skip

__all__ = ["attrib", "skip"]
