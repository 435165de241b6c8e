"""Libraries that use Theano and are translated like Theano, each with its additional redirected imports.

The libraries import names that Python, NumPy and other packages have removed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from optdb.host.theano.importing.compat import versions

HERE = "optdb.host.theano.importing.compat.modules.libraries"

Version = tuple[int, ...]


class Library(NamedTuple):
    """A library whose modules are translated."""

    distribution: str
    package: str
    #: The translated versions are those from `first` on and below `end`.
    first: Version
    end: Version
    #: Maps modules to replacements that this library needs in addition to Theano's.
    redirected: Mapping[str, str] = {}
    #: Whether the library calls ``decode`` on attributes of HDF5 files, which are text in h5py 3.
    decodes_text: bool = False

    def installed(self) -> Version:
        """Return the installed version; () if there is none."""
        return versions.installed(self.distribution)

    def is_supported(self) -> bool:
        """Return whether the installed version is translated."""
        return self.first <= self.installed() < self.end

    @property
    def supported(self) -> str:
        """The range of translated versions, in pip's syntax."""
        return f">={_text(self.first)},<{_text(self.end)}"


_SIGNAL = ("theano.tensor.signal", "theano.tensor.signal.downsample")
LIBRARIES = (
    Library("Lasagne", "lasagne", (0, 1), (0, 3), dict.fromkeys(_SIGNAL, f"{HERE}.theano_signal")),
    Library("Keras", "keras", (2, 3), (2, 4), decodes_text=True),
    Library("Keras-Applications", "keras_applications", (1, 0, 6), (1, 1)),
    Library("Keras-Preprocessing", "keras_preprocessing", (1, 0, 5), (1, 2)),
    # PyMC3 3.10 and later require Theano-PyMC.
    Library("pymc3", "pymc3", (3, 9), (3, 10), {name: f"{HERE}.{name}" for name in ("arviz", "packaging", "xarray")}),
    Library("theanets", "theanets", (0, 7, 3), (0, 8), {"climate": f"{HERE}.climate"}),
    Library("downhill", "downhill", (0, 4), (0, 5)),
)

_OF_PACKAGE = {library.package: library for library in LIBRARIES}

PACKAGES = tuple(_OF_PACKAGE)


def library_of(module: str) -> Library | None:
    """Return the library that contains a module, given by its full name; None if there is none."""
    return _OF_PACKAGE.get(module.partition(".")[0])


def is_translated(module: str) -> bool:
    """Return whether a module belongs to a library of a supported version."""
    library = library_of(module)
    return library is not None and library.is_supported()


def _text(version: Version) -> str:
    return ".".join(map(str, version))
