"""C code of what stays on the host: how it is built, what its progress bar shows, and how far a function's is."""

from optdb.host.clinker.plug import install, uninstall
from optdb.host.clinker.progress import progress
from optdb.host.clinker.tiers.progress import Tier, tier, wait

__all__ = ["Tier", "install", "progress", "tier", "uninstall", "wait"]
