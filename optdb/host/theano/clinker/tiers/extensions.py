"""Builds Scan's loop in C, which Theano compiles on first import, in a separate process."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from theano import config

from optdb.host.theano.clinker.extension_folders import EXTENSIONS, is_built
from optdb.host.theano.clinker.tiers.background import Background, Job

__all__ = ["is_scan_loop_built", "scan_loop_job"]

_MODULE = "theano.scan_module.scan_perform_ext"
_FOLDER = EXTENSIONS[_MODULE]
_CODE = "import sys; sys.path[:0] = sys.argv[1:]; import optdb, " + _MODULE


def is_scan_loop_built() -> bool:
    """Return whether Scan's loop is loaded or in the compiledir."""
    if _MODULE in sys.modules:
        return True
    return is_built(Path(config.compiledir), _FOLDER)


def scan_loop_job(queue: Background) -> Job:
    """Return the job that builds Scan's loop like the import of its module."""
    flags = {
        "compiledir": str(config.compiledir),
        "cxx": config.cxx,
        "optdb.device": "cpu",
        "optdb.contexts": "",
        "optdb.tiered": "False",
        "optdb.topo": "False",
    }
    chosen = ",".join(f"{name}={value}" for name, value in flags.items())
    env = {**os.environ, "THEANO_FLAGS": ",".join(filter(None, [os.environ.get("THEANO_FLAGS", ""), chosen]))}
    folders = [folder for folder in sys.path if folder]
    return queue.extension(_FOLDER, [sys.executable, "-c", _CODE, *folders], env)
