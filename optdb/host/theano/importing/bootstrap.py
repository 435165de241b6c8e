"""Makes Theano importable in this environment, and runs a callback once Theano is imported.

`start` installs an import hook, and the finders that translate the modules of Theano and of libraries that use it. Each
step in `AROUND` runs around the import of one of Theano's modules; `finish` runs after Theano's code has run.
"""

from __future__ import annotations

import functools
import logging
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

from optdb import flags as wanted_flags
from optdb.host.theano.importing import blas_fallback, flags, support
from optdb.host.theano.importing.compat import ccode, deferring, libraries, versions
from optdb.host.theano.importing.finders import Around, ImportHook, TranslatingFinder
from optdb.host.theano.importing.support import UnsupportedHost, UnusableCompiledir

#: The documentation lists `UnsupportedHost` under this module.
__all__ = ["UnsupportedHost", "finish", "start"]


def start(compose: Callable[[], None]) -> None:
    """Install the import hook and the translation; the hook runs `finish` and then `compose` when Theano is imported.

    If Theano is already imported, run the steps that were missed. A second call, for example when optdb is reloaded,
    does nothing.
    """
    if any(isinstance(finder, ImportHook) for finder in sys.meta_path):
        return
    around: dict[str, Around] = {"theano": functools.partial(_theano, compose), **AROUND}
    sys.meta_path.insert(0, TranslatingFinder(("theano",)))
    sys.meta_path.insert(0, TranslatingFinder(libraries.PACKAGES, libraries.is_translated))
    sys.meta_path.insert(0, ImportHook(around, missing=lambda name: support.check()))
    if "theano" in sys.modules:
        flags.register(sys.modules["theano.configparser"])
        finish()
        compose()


def finish() -> None:
    """Add the host package's features to Theano, and build C code in batches if the flags enable that."""
    import theano

    from optdb.host.api import modes, user_inplace
    from optdb.host.theano.clinker import plug as clinker
    from optdb.host.theano.functions import compiled, function_copies, printing
    from optdb.host.theano.importing import corrections

    for patches in (
        *(compiled.optimize_method, compiled.compilation_in_turn, function_copies.patches, user_inplace.patches),
        *(compiled.copies_of_results, printing.patches, corrections.patches, modes.patches),
    ):
        patches.install()
    if theano.config.optdb.clinker is True:
        clinker.install()


def default_ldflags() -> str:
    """Return the linker flags of a BLAS that works on this machine, or '' if there is none.

    This function replaces Theano's own, which gets the flags from NumPy; NumPy 1.22 and later do not report the BLAS.
    """
    from theano.configdefaults import config, gcc_version_str
    from theano.gof.cmodule import std_lib_dirs

    from optdb.host.theano.importing import blas_fallback

    if not config.cxx:
        return ""
    return blas_fallback.ldflags(config.cxx, gcc_version_str, std_lib_dirs())


def _after(change: Callable[[ModuleType], None]) -> Around:
    """Return a step that changes a module after its code has run."""

    @contextmanager
    def step(module: ModuleType) -> Iterator[None]:
        yield
        change(module)

    return step


@contextmanager
def _theano(compose: Callable[[], None], module: ModuleType) -> Iterator[None]:
    support.check()
    try:
        yield
    except ValueError as error:
        # Theano raises ValueError when it first uses an unusable compiledir.
        if "compiledir" not in str(error):
            raise
        raise UnusableCompiledir(str(error)) from error
    except Exception as error:
        known = support.compiler_error(error, _compiler())
        if known is None:
            raise
        raise known from error
    finish()
    compose()


def _compiler() -> str:
    defaults = sys.modules.get("theano.configdefaults")
    return getattr(getattr(defaults, "config", None), "cxx", "")


@contextmanager
def _cmodule(module: ModuleType) -> Iterator[None]:
    """Make Theano's C code compile with current Python and NumPy versions, and cache queries to the compiler."""
    with deferring.deferred(module):
        yield
    ccode.install(module)
    from optdb.host.theano.clinker.probing import remember_trials, watch_compiler

    watch_compiler(module)
    if _builds_in_batches():
        remember_trials(module)


@contextmanager
def _remembering_queries() -> Iterator[None]:
    """Cache Theano's queries to the compiler while it declares its flags."""
    if not _builds_in_batches():
        yield
        return
    from optdb.host.theano.clinker.probing import remember_queries

    with remember_queries():
        yield


def _builds_in_batches() -> bool:
    from optdb.host.theano.clinker import plug

    return plug.is_wanted()


@contextmanager
def _extension(module: ModuleType) -> Iterator[None]:
    """While one of Theano's own extension modules is built, hold a lock that only covers this module."""
    from optdb.host.theano.clinker.extensions import build_alone

    with build_alone(module):
        yield


@contextmanager
def _configdefaults(module: ModuleType) -> Iterator[None]:
    from theano import configparser

    add = configparser.AddConfigVar

    def amend_and_add(name: str, doc: str, parameter: Any, **options: Any) -> None:
        if name == "blas.ldflags":
            # Replace only the flag's default, a function that Theano calls if the user has given no value.
            parameter.default = default_ldflags
        elif name == "compiledir_format" and versions.needs_promotion():
            # Separate the compiledirs of NumPy 1 and 2: modules without keys (the virtual machine, Scan) that were
            # built for NumPy 1 do not work with NumPy 2.
            parameter.default += "-numpy2"
        elif name == "mode":
            parameter.filter = _mode_filter(parameter.filter)
        elif name in ("device", "init_gpu_device", "contexts"):
            parameter.filter = _device_filter(name, parameter.filter)
        elif name == "linker":
            parameter.filter = _or(("opencl",), parameter.filter)
        add(name, doc, parameter, **options)

    configparser.AddConfigVar = amend_and_add
    try:
        with _remembering_queries(), deferring.deferred(module):
            yield
    finally:
        configparser.AddConfigVar = add
    flags.warn_without_section(configparser)
    # If the compiler's version is unknown, check now whether the compiler works. Theano itself would fail later or, if
    # its modules are cached, only when `theano.function` is called.
    if module.config.cxx and module.gcc_version_str == "GCC_NOT_FOUND":
        support.check_compiler(module.config.cxx)


_MODES = ("Mode", "DebugMode", "FAST_RUN", "NanGuardMode", "FAST_COMPILE", "DEBUG_MODE")
_OUR_MODES = ("TOPO", "OPENCL")


def _mode_filter(check: Callable[[object], object]) -> Callable[[object], object]:
    """Make Theano's check of the flag ``mode`` accept optdb's modes, and list them in its error message."""

    def check_mode(value: object) -> object:
        if value in _OUR_MODES:
            return value
        try:
            return check(value)
        except ValueError:
            raise wanted_flags.unknown_mode(value, (*_MODES, *_OUR_MODES), "mode") from None

    return check_mode


def _device_filter(name: str, check: Callable[[str], object]) -> Callable[[str], object]:
    """Make the error about a flag for Theano's GPU back-end mention the corresponding flag of optdb."""

    def check_device(value: str) -> object:
        wanted_flags.check_gpu_backend(name, value)
        return check(value)

    return check_device


def _or(names: tuple[str, ...], check: Callable[[object], object]) -> Callable[[object], object]:
    return lambda value: value if value in names else check(value)


@contextmanager
def _blas_headers(module: ModuleType) -> Iterator[None]:
    with _without_warning_of_fallback():
        yield
    blas_fallback.install(module)


@contextmanager
def _without_warning_of_fallback() -> Iterator[None]:
    """Suppress the warning that there is no BLAS, unless the user has set ``blas.ldflags`` to an empty value."""
    from theano.configdefaults import config

    # Read the value first, because `is_default` is only set by the first read.
    ldflags = config.blas.ldflags
    if ldflags or not _parameter(config.blas, "ldflags").is_default:
        yield
        return

    def not_the_fallback(record: logging.LogRecord) -> bool:
        return "NumPy C-API based implementation" not in record.getMessage()

    logger = logging.getLogger("theano.tensor.blas")
    logger.addFilter(not_the_fallback)
    try:
        yield
    finally:
        logger.removeFilter(not_the_fallback)


@contextmanager
def _scan_perform_ext(module: ModuleType) -> Iterator[None]:
    from theano.gof import cmodule

    with ccode.compiling_scan(cmodule), _extension(module):
        yield


def _parameter(section: object, name: str) -> Any:
    """Return the object that represents a Theano flag, not the flag's value."""
    return vars(type(section))[name]


AROUND: dict[str, Around] = {
    "theano.configparser": _after(flags.register),
    "theano.configdefaults": _configdefaults,
    "theano.gof.cmodule": _cmodule,
    "theano.gof.cutils": _extension,
    "theano.gof.lazylinker_c": _extension,
    "theano.tensor.blas_headers": _blas_headers,
    "theano.tensor.inc_code": _after(ccode.replace_inc_code),
    "theano.tensor.nnet.corr": _after(lambda module: blas_fallback.stay_in_one_thread(module.BaseCorrMM)),
    "theano.tensor.nnet.corr3d": _after(lambda module: blas_fallback.stay_in_one_thread(module.BaseCorr3dMM)),
    "theano.scan_module.scan_perform_ext": _scan_perform_ext,
    **dict.fromkeys(deferring.MODULES, deferring.deferred),
}
