"""Connects the engine to Theano, for all functions or for the functions of one mode.

:func:`enable` affects every mode, every inner graph of a Scan and every third-party pipeline. :func:`mode` has the same
effect, but only in the thread that compiles a function with that mode.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from optdb.host.api import c_code, databases
from optdb.host.api.config import config
from optdb.host.api.device_linker import DeviceLinker
from optdb.host.api.modes import Mode, compile_within, provided_parts, register_mode, with_tiers
from optdb.host.api.patching import PatchGroup, Switch, Wrapper, around
from optdb.host.api.session import prepare, remove_all
from optdb.topo import specializing, sums  # noqa: F401  they register their rewriters
from optdb.topo.db import ENGINE_TAG
from optdb.topo.scalars import SIZES_TAG
from optdb.topo.translate import translate


@around
def _translating(query: Callable[..., Any], self: Any, *tags: Any, **kwtags: Any) -> Any:
    if not (_state.enabled or _thread.compiles):
        return query(self, *tags, **kwtags)
    if tags and isinstance(tags[0], databases.Query):
        tags = (as_flags_say(with_engine_rewriters(tags[0])), *tags[1:])
    return translate(query(self, *tags, **kwtags))


def with_engine_rewriters(query: databases.Query) -> databases.Query:
    """If a query selects optimized code, add the engine's own rewriters to the query."""
    selects = "fast_run" in query.include and ENGINE_TAG not in query.include
    return query.including(ENGINE_TAG) if selects else query


def as_flags_say(query: databases.Query) -> databases.Query:
    """If ``config.optdb.shapes`` is off, exclude shape inference and the rewriters that use it."""
    return query if config.optdb.shapes else query.excluding(*databases.SHAPES_AND_THEIR_USERS)


class _State:
    def __init__(self) -> None:
        self.enabled = False
        self.compiling = 0


class _Thread(threading.local):
    compiles = False


_lock = threading.RLock()
_state = _State()
_thread = _Thread()
_patches = PatchGroup(
    "Rewrite engine",
    "from optdb.enable() on, or while a function is compiled with optdb.mode()",
    "optdb.disable()",
    [
        Wrapper(databases.EquilibriumDB, "query", databases.visiting_members_once, "a query visits its members once"),
        *(
            Wrapper(database, "query", _translating, "the engine runs the rewriters that a query selects")
            for database in (databases.EquilibriumDB, databases.SequenceDB, databases.TopoDB)
        ),
    ],
)


def is_enabled() -> bool:
    """Return whether the engine handles every query."""
    return _state.enabled


def enable(tiered: bool | None = None, matmul_precision: str | None = None) -> Switch:
    """Run Theano's rewrite phases with the engine, from the next compilation on.

    Parameters
    ----------
    tiered : bool, optional
        Sets the flag ``optdb.tiered``: whether functions run in Python while their C code is built. None leaves the
        flag unchanged.
    matmul_precision : {'highest', 'high', 'default'}, optional
        Sets the flag ``optdb.matmul_precision``: the precision of a device's matrix products.

    Returns
    -------
    Switch
        A switch; if it is used as a context manager, it restores the previous state at exit.

    Raises
    ------
    optdb.flags.FlagError
        If there is no such precision.

    Examples
    --------
    >>> import optdb
    >>> with optdb.enable():
    ...     import theano
    ...     x = theano.tensor.vector()
    ...     f = theano.function([x], x ** 8)
    """
    wanted = {"tiered": tiered, "matmul_precision": matmul_precision}
    before = {name: getattr(config.optdb, name) for name, value in wanted.items() if value is not None}
    for name in before:
        setattr(config.optdb, name, wanted[name])
    with _lock:
        was_enabled = _state.enabled
        _state.enabled = True
        _install()
        prepare()
    if not before:
        return Switch(disable, was_enabled)

    def restore() -> None:
        for name, value in before.items():
            setattr(config.optdb, name, value)
        if not was_enabled:
            disable()

    return Switch(restore, was_on=False)


def disable() -> None:
    """Restore Theano's own optimizers, regardless of which call enabled the engine."""
    with _lock:
        _state.enabled = False
        _uninstall_unused()
        remove_all()


@contextmanager
def _enabled_in_this_thread() -> Iterator[None]:
    """In the `with` block, compile as if `enable` had been called; other threads keep Theano's own optimizers."""
    with _lock:
        _state.compiling += 1
        _install()
    _thread.compiles = True
    try:
        yield
    finally:
        _thread.compiles = False
        with _lock:
            _state.compiling -= 1
            _uninstall_unused()


def _install() -> None:
    _patches.install()
    c_code.install()
    c_code.compute_whole_arrays()


def _uninstall_unused() -> None:
    if _state.enabled or _state.compiling:
        return
    _patches.uninstall()
    c_code.compute_by_perform()
    if config.optdb.clinker == "auto":
        c_code.uninstall()


class TopoMode(Mode):
    """A Mode whose rewrite phases always run on the engine."""

    @property
    def optimizer(self) -> Any:
        if isinstance(self._optimizer, databases.Query):
            return translate(databases.compile_db().query(as_flags_say(with_engine_rewriters(self._optimizer))))
        return translate(super().optimizer)


class DeviceMode(TopoMode):
    """A Mode whose functions run on a device.

    Theano caches its default mode by class name, so the modes OPENCL and TOPO must have different classes.
    """


#: Phases that are excluded for devices. Devices have their own versions of these phases, which run after nodes have
#: been moved to the device. The last of these phases, Theano's check of convolutions, would reject float16.
_HOST_PHASES = ("inplace", "fusion", "opencl", "AbstractConvCheck")


def mode(base: Any = "FAST_RUN", device: str | None = None, tiered: bool = False) -> TopoMode:
    """Return a Theano mode that uses the engine.

    Parameters
    ----------
    base : str, Mode or None
        The mode that provides the linker and the query; None means
        ``config.mode``.
    device : str, optional
        The device that runs functions: the name of an OpenCL context, a device's number, such as ``'opencl0:0'``, or a
        part of a device's name. ``'auto'`` selects the default context's device or, without a default context, the best
        device that works. Shared variables stay on the host, and are copied when they have changed.
    tiered : bool
        Whether functions run in Python while their C code is built. False leaves the decision to the flag
        ``optdb.tiered``.

    Returns
    -------
    TopoMode
        A mode whose methods ``including``, ``excluding``, ``requiring`` and
        ``register`` return modes of the same kind.

    Raises
    ------
    optdb.flags.UnknownMode
        If there is no mode named `base`; the message lists the names.
    ValueError
        If `tiered` is True for a device or for a linker that does not support tiers.
    """
    linker, optimizer = provided_parts(base)
    if device is None:
        return TopoMode(linker=with_tiers(linker) if tiered else linker, optimizer=optimizer)
    if tiered:
        raise ValueError("tiered=True is only for functions on the host: remove it, or remove device=")
    if isinstance(optimizer, databases.Query):
        fuses = "fast_run" in optimizer.include and "fusion" not in optimizer.exclude
        optimizer = optimizer.excluding(*_HOST_PHASES).including(*([SIZES_TAG] if fuses else []))
    return DeviceMode(linker=DeviceLinker(device), optimizer=optimizer)


compile_within(TopoMode, _enabled_in_this_thread)
register_mode("TOPO", mode("FAST_RUN"))
register_mode("OPENCL", mode("FAST_RUN", device="auto"))
