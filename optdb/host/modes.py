"""Modes: how a name or a Mode object chooses optimizer and linker."""

from __future__ import annotations

from typing import Any

from theano.compile.mode import Mode, get_mode, predefined_modes, register_mode

__all__ = ["Mode", "get_mode", "predefined_modes", "provided_parts", "register_mode"]


def provided_parts(mode: Any) -> tuple[Any, Any]:
    """Return the linker and the optimizer query of a mode, a mode's name, or None.

    Raises
    ------
    TypeError
        If it is something else, or a mode that brings its own machinery
        (DebugMode) and has no query to go by.
    """
    mode = get_mode(mode)
    if not isinstance(mode, Mode):
        raise TypeError(f"expected a theano Mode or the name of one, not {mode!r}")
    return mode.provided_linker, mode.provided_optimizer
