"""What ``python -m optdb cache`` prints, and removes: the OpenCL programs that are kept on disk."""

from __future__ import annotations

import datetime

from optdb.runtime.binaries import Binaries, configure
from optdb.runtime.device_profiles import KNOWN_QUIRKS


def report(clear: bool = False) -> int:
    """Tell where programs are kept, after removing them if `clear`; return the process's exit status.

    Returns
    -------
    int
        1 where they should have been removed, and were not.
    """
    kept = folder()
    if clear:
        print(f"removed {kept.clear()} program(s)")
    print(f"{kept.folder}: {described(kept)}")
    for entry in reversed(kept.entries()):
        used = datetime.datetime.fromtimestamp(entry.used).isoformat(" ", "minutes")
        print(f"    {entry.path.name[:12]}  {entry.size / 2**20:8.2f} MB  last used {used}")
    drivers = [quirk.platform for quirk in KNOWN_QUIRKS if quirk.name == "keeps_binaries_itself"]
    print(f"Left to the driver, which has a cache of its own or needs none: {', '.join(drivers)}")
    return int(clear and bool(kept.entries()))


def folder() -> Binaries:
    """Return what the flags name."""
    from optdb.host.bootstrap import import_host

    import_host()
    from optdb.host.config import config

    return configure(config.optdb.kernel_cache_dir, config.optdb.kernel_cache_size)


def described(kept: Binaries) -> str:
    """Tell how much there is."""
    entries = kept.entries()
    size = sum(entry.size for entry in entries) / 2**20
    most = f"of {kept.limit // 2**20} MB" if kept.limit else "MB; none is added (optdb.kernel_cache_size is 0)"
    return f"{len(entries)} program(s), {size:.1f} {most}"
