"""Theano's configuration (which also contains the optdb.* flags), and Theano's logger for rewriting."""

from __future__ import annotations

import logging
from contextlib import AbstractContextManager
from typing import Any

from theano import change_flags, config

from optdb.refcounting import RefCountedSetting

#: The logger in which users and Theano's tests look for failures.
logger = logging.getLogger("theano.gof.opt")


def parameter(flag: str) -> Any:
    """Return the object that holds a flag. Reading the object's ``val`` avoids several calls to ``config``."""
    owner = config
    *sections, name = flag.split(".")
    for section in sections:
        owner = getattr(owner, section)
    getattr(owner, name)  # `val` is set when the flag is first read
    return getattr(type(owner), name)


def as_when_compiling() -> AbstractContextManager[None]:
    """In the block, limit stack traces as during compilation, to ``traceback.compile_limit`` frames (by default, 0)."""
    return _limit.held()


def _shorten() -> int:
    usual = config.traceback.limit
    _set_limit(config.traceback.compile_limit)
    return usual


def _set_limit(limit: int) -> None:
    config.traceback.limit = limit


_limit = RefCountedSetting(_shorten, _set_limit)
