"""Theano's configuration object, in which the optdb.* flags live too."""

from __future__ import annotations

from contextlib import AbstractContextManager

from theano import config
from theano.configparser import change_flags

__all__ = ["as_when_compiling", "config"]


def as_when_compiling() -> AbstractContextManager[None]:
    """Let variables not remember where they are made, as while a function is compiled: they get the user's traces."""
    return change_flags(**{"traceback.limit": config.traceback.compile_limit})
