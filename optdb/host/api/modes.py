"""Modes, which select an optimizer and a linker."""

from __future__ import annotations

import copy
import functools
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

from theano.compile import mode as mode_module
from theano.compile.function_module import FunctionMaker
from theano.compile.mode import Mode, get_mode, predefined_linkers, predefined_modes, register_mode
from theano.gof.vm import VM_Linker

from optdb.flags import unknown_mode
from optdb.host.api.patching import PatchGroup, Wrapper, around


def _known_names() -> set[str]:
    """Return the names of all modes, including those that Theano creates on first use."""
    return {"Mode", "DebugMode", "DEBUG_MODE", "NanGuardMode", *predefined_modes}


def _check_name(mode: Any) -> None:
    if isinstance(mode, str) and mode not in _known_names():
        raise unknown_mode(mode, _known_names())


@around
def _checking_name(look_up: Callable[[Any], Any], mode: Any) -> Any:
    _check_name(mode)
    return look_up(mode)


patches = PatchGroup(
    "Names of modes",
    "from the import of Theano on",
    "nothing",
    [Wrapper(mode_module, "get_mode", _checking_name, "the error for an unknown mode lists all modes")],
)


def provided_parts(mode: Any) -> tuple[Any, Any]:
    """Return the linker and the optimizer query of `mode` (a Mode, a name or None).

    Raises
    ------
    optdb.flags.UnknownMode
        If no mode has that name.
    TypeError
        If `mode` is something else, or has its own optimizer and no query, like DebugMode.
    """
    _check_name(mode)
    mode = get_mode(mode)
    if not isinstance(mode, Mode):
        raise TypeError(f"expected a theano Mode or the name of one, not {mode!r}")
    return mode.provided_linker, mode.provided_optimizer


def with_tiers(linker: Any) -> VM_Linker:
    """Return a copy of a linker; functions that the copy links run in Python while their C code is built.

    Raises
    ------
    ValueError
        If functions of this linker cannot start in Python.
    """
    found = predefined_linkers[linker] if isinstance(linker, str) else linker
    if not isinstance(found, VM_Linker):
        raise ValueError(
            f"functions of the linker {linker!r} wait for their C code\n"
            "The cure: a linker with a virtual machine, cvm or vm, as in optdb.mode(theano.Mode('cvm'), tiered=True)"
        )
    tiered = copy.copy(found)
    tiered.tiered = True
    return tiered


def compile_within(kind: type[Mode], scope: Callable[[], AbstractContextManager[Any]]) -> None:
    """Enter `scope()` around each later compilation of a function whose mode is an instance of `kind`.

    This includes inner functions, copies and unpickled functions. The context may install patches on `FunctionMaker`.
    """
    running = threading.local()

    def scoped(name: str, mode_of: Callable[..., Any]) -> Wrapper:
        def around(method: Callable[..., Any]) -> Callable[..., Any]:
            @functools.wraps(method)
            def within_scope(self: FunctionMaker, *args: Any, **kwargs: Any) -> Any:
                nested = getattr(running, "inside", False)
                if nested or not isinstance(get_mode(mode_of(self, *args, **kwargs)), kind):
                    return method(self, *args, **kwargs)
                running.inside = True
                try:
                    with scope():
                        # Look the method up again, because the scope may have installed patches on top of this patch.
                        return getattr(FunctionMaker, name)(self, *args, **kwargs)
                finally:
                    running.inside = False

            return within_scope

        return Wrapper(
            FunctionMaker, name, around, f"functions of a {kind.__name__} are compiled as within optdb.enable()"
        )

    def mode_argument(self: Any, inputs: Any, outputs: Any, mode: Any = None, *args: Any, **kwargs: Any) -> Any:
        return mode

    group = PatchGroup(
        f"Functions of a {kind.__name__}",
        "from the import of Theano on",
        "nothing",
        [scoped("__init__", mode_argument), scoped("create", lambda self, *args, **kwargs: self.mode)],
    )
    group.install()
