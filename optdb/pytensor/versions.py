"""The supported versions of PyTensor."""

from __future__ import annotations

import re

__all__ = ["BELOW", "LOWEST", "SUPPORTED", "PyTensorNotInstalled", "UnsupportedPyTensor", "check"]

#: The first supported version, and the first later one that may not work: PyTensor's internals change between versions.
LOWEST, BELOW = (3, 3), (3, 4)
SUPPORTED = f">={LOWEST[0]}.{LOWEST[1]},<{BELOW[0]}.{BELOW[1]}"
_CURE = f"pip install 'pytensor{SUPPORTED}'"


class UnsupportedPyTensor(ImportError):
    """The installed version of PyTensor is not supported.

    Parameters
    ----------
    finding : str
        What is installed, as a sentence.
    """

    #: What the user can do, in one line.
    cure = _CURE

    def __init__(self, finding: str) -> None:
        super().__init__(f"{finding}; optdb supports PyTensor {SUPPORTED}.\nThe cure: {self.cure}", name="pytensor")
        self.finding = finding


class PyTensorNotInstalled(UnsupportedPyTensor, ModuleNotFoundError):
    """PyTensor is not installed."""


def check() -> None:
    """Import PyTensor; raise UnsupportedPyTensor if it is missing or of another version."""
    try:
        import pytensor
    except ModuleNotFoundError as error:
        if error.name != "pytensor":
            raise
        raise PyTensorNotInstalled("PyTensor is not installed") from None
    numbers = tuple(map(int, re.findall(r"\d+", pytensor.__version__)[:2]))
    if not LOWEST <= numbers < BELOW:
        raise UnsupportedPyTensor(f"PyTensor {pytensor.__version__} is installed")
