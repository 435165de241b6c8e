"""Modes: how a name or a Mode object chooses optimizer and linker."""

from __future__ import annotations

from typing import Any

from theano.compile.mode import Mode, get_mode, predefined_modes, register_mode

from optdb.flags import unknown_mode

__all__ = ["Mode", "get_mode", "predefined_modes", "provided_parts", "register_mode"]


def _known_names() -> set[str]:
    """Return the names of all modes; Theano makes some of them when they are first asked for."""
    return {"Mode", "DebugMode", "DEBUG_MODE", "NanGuardMode", *predefined_modes}


def provided_parts(mode: Any) -> tuple[Any, Any]:
    """Return the linker and the optimizer query of a mode, a mode's name, or None.

    Raises
    ------
    optdb.flags.UnknownMode
        If no mode has that name.
    TypeError
        If it is something else, or a mode that brings its own machinery
        (DebugMode) and has no query to go by.
    """
    if isinstance(mode, str) and mode not in _known_names():
        raise unknown_mode(mode, _known_names())
    mode = get_mode(mode)
    if not isinstance(mode, Mode):
        raise TypeError(f"expected a theano Mode or the name of one, not {mode!r}")
    return mode.provided_linker, mode.provided_optimizer
