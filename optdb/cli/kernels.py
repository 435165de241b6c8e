"""Prints and clears the cache of OpenCL programs on disk, for ``python -m optdb cache``."""

from __future__ import annotations

import datetime

from rich.console import Console

from optdb.cli.terminal import print_text, verbatim
from optdb.runtime.binaries import Binaries, configure, current
from optdb.runtime.device_profiles import KNOWN_QUIRKS

#: The maximum number of programs in the list, which begins with the most recently used program.
SHOWN = 20


def report(clear: bool = False) -> int:
    """Print the cache's folder and entries; return 1 if `clear` could not remove all entries, else 0."""
    binaries = folder()
    if clear:
        print(f"removed {binaries.clear()} program(s)")
    print(f"{described(binaries)}, in\n{verbatim(binaries.folder)}")
    entries = list(reversed(binaries.entries()))
    for entry in entries[:SHOWN]:
        used = datetime.datetime.fromtimestamp(entry.used).isoformat(" ", "minutes")
        print(f"    {entry.path.name[:12]}  {entry.size / 2**10:10,.1f} kB  last used {used}")
    if len(entries) > SHOWN:
        print(f"    and {len(entries) - SHOWN} more")
    drivers = [quirk.platform for quirk in KNOWN_QUIRKS if quirk.name == "keeps_binaries_itself"]
    print_text(
        Console(),
        f"The cache does not contain programs of {', '.join(drivers)}: these drivers have their own caches, or need "
        "none.",
    )
    return int(clear and bool(binaries.entries()))


def folder() -> Binaries:
    """Return the cache folder: from Theano's flags if Theano is installed, else the default folder."""
    from optdb.host import import_host
    from optdb.host.theano.importing import support

    if support.found("Theano") is None:
        return current()
    import_host()
    from optdb.host.api.config import config

    return configure(config.optdb.kernel_cache_dir, config.optdb.kernel_cache_size)


def described(binaries: Binaries) -> str:
    """Return the number of programs, their size and the cache's limit, as text."""
    entries = binaries.entries()
    size = sum(entry.size for entry in entries) / 2**20
    most = f"of {binaries.limit // 2**20} MB" if binaries.limit else "MB; none is added (optdb.kernel_cache_size is 0)"
    return f"{len(entries)} program(s), {size:.1f} {most}"
