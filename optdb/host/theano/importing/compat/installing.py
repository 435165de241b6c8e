"""Installs Theano from the package index if pip alone cannot build it.

Theano's setup script needs a class that Python 3.12 removed. `install` makes pip build the unchanged source with a
``sitecustomize`` that provides the class, and with setuptools from a separate folder.
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from optdb.host.theano.importing.compat import versions

THEANO = "Theano==1.0.5"
COMMAND = "python -m optdb install-theano"

#: Later versions of setuptools may not support setup scripts.
SETUPTOOLS = "setuptools>=77,<86"

SITECUSTOMIZE = """\
import configparser

if not hasattr(configparser, "SafeConfigParser"):

    class SafeConfigParser(configparser.ConfigParser):
        def readfp(self, file, filename=None):
            self.read_file(file, filename)

    configparser.SafeConfigParser = SafeConfigParser
"""


class CannotInstall(RuntimeError):
    """Raised if Theano could not be installed. The message says how to fix the problem."""


def install(options: Sequence[str] = ()) -> bool:
    """Install Theano if it is missing; return whether it was missing. `options` are passed to ``pip install``.

    Raises
    ------
    CannotInstall
        If pip is missing or fails.
    """
    if versions.installed("Theano") == (1, 0, 5):
        return False
    if importlib.util.find_spec("pip") is None:
        raise CannotInstall("pip is not installed here.\nThe cure: python -m ensurepip")
    with tempfile.TemporaryDirectory(prefix="optdb-install-") as folder:
        tools, shim = Path(folder, "tools"), Path(folder, "shim")
        shim.mkdir()
        (shim / "sitecustomize.py").write_text(SITECUSTOMIZE)
        _pip("install", "--quiet", "--target", str(tools), *options, SETUPTOOLS)
        # Disable build isolation: with isolation, pip would replace sys.path, which would remove the `sitecustomize`.
        _pip("install", "--use-pep517", "--no-build-isolation", *options, THEANO, path=[str(shim), str(tools)])
    return True


def _pip(*arguments: str, path: Sequence[str] = ()) -> None:
    environment = {**os.environ, "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
    if path:
        before = os.environ.get("PYTHONPATH")
        environment["PYTHONPATH"] = os.pathsep.join([*path, *([before] if before else [])])
    command = [sys.executable, "-m", "pip", *arguments]
    if subprocess.run(command, env=environment).returncode:
        raise CannotInstall(f"pip failed (its messages are above): {' '.join(command)}")
