"""``distutils.spawn``: finding programs."""

import shutil


def find_executable(executable: str, path: str | None = None) -> str | None:
    """Return where a program lies, None where there is none."""
    return shutil.which(executable, path=path)
