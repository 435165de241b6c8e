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
    flags = os.environ.get("THEANO_FLAGS", "")
    if "base_compiledir" not in flags:
        own = f"base_compiledir={ROOT / 'build' / 'theano-cache'}"
        os.environ["THEANO_FLAGS"] = f"{flags},{own}".strip(",")
    os.environ.setdefault("XDG_CACHE_HOME", str(ROOT / "build" / "cache"))


_keep_inside_checkout()

from hypothesis import settings  # noqa: E402

import optdb  # noqa: E402, F401 (before any test imports Theano)

# Compiling takes what it takes, and CI is to fail for a change, not by chance.
settings.register_profile("optdb", deadline=None, derandomize=True)
settings.load_profile("optdb")
