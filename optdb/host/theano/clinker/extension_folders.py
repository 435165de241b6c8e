"""The folders of the modules that Theano compiles for itself, and whether these are complete."""

from __future__ import annotations

import shutil
from pathlib import Path

from optdb.files import is_truncated

__all__ = ["EXTENSIONS", "is_built", "remove_truncated"]

#: Theano's modules that compile an extension on import, and the folder of the extension.
EXTENSIONS = {
    "theano.gof.cutils": "cutils_ext",
    "theano.gof.lazylinker_c": "lazylinker_ext",
    "theano.scan_module.scan_perform_ext": "scan_perform",
}
#: Theano writes no version for this extension.
_WITHOUT_VERSION = "cutils_ext"


def remove_truncated(compiledir: Path, name: str) -> None:
    """Remove an extension whose library is truncated, and its version, so that Theano compiles it again.

    Parameters
    ----------
    compiledir : Path
        Theano's folder of compiled modules.
    name : str
        The extension's folder, one of the values of `EXTENSIONS`.
    """
    folder = compiledir / name
    if any(is_truncated(library) for library in folder.glob(f"{name}.*")):
        shutil.rmtree(folder, ignore_errors=True)


def is_built(compiledir: Path, name: str) -> bool:
    """Return whether an extension is complete; Theano writes its version after its library.

    Parameters
    ----------
    compiledir : Path
        Theano's folder of compiled modules.
    name : str
        The extension's folder, one of the values of `EXTENSIONS`.
    """
    folder = compiledir / name
    if not any(folder.glob(f"{name}.*")):
        return False
    version = folder / "__init__.py"
    return name == _WITHOUT_VERSION or (version.exists() and version.stat().st_size > 0)
