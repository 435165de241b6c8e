"""C code of what stays on the host: how it is built, and what its progress bar shows."""

from optdb.host.clinker.plug import install, uninstall
from optdb.host.clinker.progress import progress

__all__ = ["install", "progress", "uninstall"]
