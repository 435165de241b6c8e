"""The supported versions of PyTensor."""

from __future__ import annotations

import re
import shlex
import sys

#: The first supported version, and the first later version that is not supported.
LOWEST, BELOW = (3, 3), (3, 4)
SUPPORTED = f">={LOWEST[0]}.{LOWEST[1]},<{BELOW[0]}.{BELOW[1]}"
#: The first Python version that these versions of PyTensor support.
_LOWEST_PYTHON = (3, 12)


def _cure() -> str:
    """Return a one-line fix; if it is a command, it calls this Python, because `pip` may belong to another Python."""
    if sys.version_info < _LOWEST_PYTHON:
        return f"make a virtual environment with Python {'.'.join(map(str, _LOWEST_PYTHON))} or later"
    return f"{shlex.quote(sys.executable)} -m pip install 'pytensor{SUPPORTED}'"


class UnsupportedPyTensor(ImportError):
    """Raised if the installed version of PyTensor is not supported; `finding` states what is installed."""

    def __init__(self, finding: str) -> None:
        self.finding, self.cure = finding, _cure()
        super().__init__(f"{finding}; optdb supports PyTensor {SUPPORTED}.\nThe cure: {self.cure}", name="pytensor")


class PyTensorNotInstalled(UnsupportedPyTensor, ModuleNotFoundError):
    """Raised if PyTensor is not installed."""


def check() -> None:
    """Import PyTensor; raise UnsupportedPyTensor if it is missing or its version is not supported."""
    try:
        import pytensor
    except ModuleNotFoundError as error:
        if error.name != "pytensor":
            raise
        raise PyTensorNotInstalled("PyTensor is not installed") from None
    numbers = tuple(map(int, re.findall(r"\d+", pytensor.__version__)[:2]))
    if not LOWEST <= numbers < BELOW:
        raise UnsupportedPyTensor(f"PyTensor {pytensor.__version__} is installed")
