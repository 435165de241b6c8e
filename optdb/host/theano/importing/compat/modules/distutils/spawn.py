"""``distutils.spawn``: finding programs."""

import shutil


def find_executable(executable: str, path: str | None = None) -> str | None:
    """Return the path of a program; None if there is none."""
    return shutil.which(executable, path=path)
