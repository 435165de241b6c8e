"""What all tests share.

Compiled code and caches go to build/ in the checkout, unless the user says otherwise:
tests write nothing outside it. This is set in the environment, before Theano is imported,
and so holds for the processes that tests start too.
"""

from __future__ import annotations

import os
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def _keep_inside_checkout() -> None:
    flags = [flag for flag in os.environ.get("THEANO_FLAGS", "").split(",") if flag]
    said = [flag.partition("=")[2] for flag in flags if flag.strip().startswith("base_compiledir")]
    folder = said[-1] if said else str(ROOT / "build" / "theano-cache")
    worker = os.environ.get("PYTEST_XDIST_WORKER")
    if worker is not None:
        # Of those that run side by side, one would wait for the other one's lock.
        folder = f"{folder}-{worker}"
    os.environ["THEANO_FLAGS"] = ",".join([*flags, f"base_compiledir={folder}"])
    os.environ.setdefault("XDG_CACHE_HOME", str(ROOT / "build" / "cache"))


_keep_inside_checkout()

from hypothesis import settings  # noqa: E402

import optdb  # noqa: E402, F401 (before any test imports Theano)

# Compiling takes what it takes, and CI is to fail for a change, not by chance.
settings.register_profile("optdb", deadline=None, derandomize=True)
settings.load_profile("optdb")
