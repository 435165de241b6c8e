"""Creates a full file system, for tests of full disks."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

_NBYTES = 64 << 10


@contextmanager
def full_disk(folder: Path) -> Iterator[Path]:
    """Mount a small file system on a new folder and fill it; skip the test if that is not permitted."""
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={_NBYTES}", "tmpfs", str(folder)]
    try:
        subprocess.run(mount, check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"no file system can be mounted: {error}")
    try:
        with (folder / "everything").open("wb", buffering=0) as file:
            file.write(bytes(_NBYTES))
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)
