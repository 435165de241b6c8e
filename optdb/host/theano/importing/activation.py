"""Makes ``import theano`` load optdb throughout an environment, for programs that do not import optdb.

`activate` writes a ``.pth`` file, which Python runs at startup. The file adds a finder that imports optdb when Theano
or a library that uses Theano is imported.
"""

from __future__ import annotations

import sysconfig
from pathlib import Path

from optdb.files import replace_file
from optdb.host.theano.importing.compat import libraries

_FINDER = '''
class OptdbActivation:
    """Imports optdb in front of Theano, and of the libraries that optdb translates."""

    NAMES = {names}

    @classmethod
    def find_spec(cls, name, path=None, target=None):
        if name not in cls.NAMES:
            return None
        sys.meta_path.remove(cls)
        if "optdb" in sys.modules:
            return None
        try:
            import optdb
        except ImportError:
            return None
        # optdb has put its own finders in front: ask these, as the caller has passed them already.
        specs = (finder.find_spec(name, path, target) for finder in tuple(sys.meta_path))
        return next((spec for spec in specs if spec is not None), None)

sys.meta_path.insert(0, OptdbActivation)
'''.format(names=("theano", *libraries.PACKAGES))


class CannotActivate(RuntimeError):
    """Raised if the environment's folder is not writable. The message names the folder and the fix."""


def pth_file() -> Path:
    """Return the path of the file that `activate` writes, in the running Python's site-packages folder."""
    return Path(sysconfig.get_path("purelib")) / "optdb_activation.pth"


def is_active() -> bool:
    """Return whether ``import theano`` loads optdb in this environment."""
    return pth_file().is_file()


def activate() -> Path:
    """Make ``import theano`` load optdb in all programs of this environment; return the written file.

    Raises
    ------
    CannotActivate
        If the file cannot be written.
    """
    path = pth_file()
    line = f"import sys; exec({_FINDER!r}, {{'sys': sys}})\n"
    try:
        replace_file(path, line.encode())
        path.chmod(0o644)
    except OSError as error:
        raise _cannot(error, path) from error
    return path


def deactivate() -> bool:
    """Undo `activate`; return whether there was anything to undo.

    Raises
    ------
    CannotActivate
        If the file cannot be removed.
    """
    path = pth_file()
    try:
        path.unlink()
    except FileNotFoundError:
        return False
    except OSError as error:
        raise _cannot(error, path) from error
    return True


def _cannot(error: OSError, path: Path) -> CannotActivate:
    return CannotActivate(
        f"{path}: {error.strerror}.\n"
        "The cure: use your own virtual environment (python -m venv FOLDER), or run this command as the owner of "
        "that folder"
    )
