"""The folders of the modules that Theano compiles for itself, and which of them are whole."""

from __future__ import annotations

from pathlib import Path

__all__ = ["EXTENSIONS", "is_built"]

#: Theano's modules that compile an extension when they are imported, and the folder of the extension.
EXTENSIONS = {
    "theano.gof.cutils": "cutils_ext",
    "theano.gof.lazylinker_c": "lazylinker_ext",
    "theano.scan_module.scan_perform_ext": "scan_perform",
}
#: Theano writes no version of this one.
_WITHOUT_VERSION = "cutils_ext"


def is_built(compiledir: Path, name: str) -> bool:
    """Return whether an extension is whole; Theano writes its version after its library.

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
