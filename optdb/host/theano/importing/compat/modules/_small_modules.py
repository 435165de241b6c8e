"""Creates the replacements that define few names themselves, as modules without a file."""

from __future__ import annotations

import collections.abc
import importlib.util
import pickle
import shutil
import sys
import sysconfig
from collections import namedtuple
from collections.abc import Callable
from configparser import ConfigParser
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any, TypeVar

from optdb.host.theano.importing.compat import versions
from optdb.host.theano.importing.compat.modules._falling_back import fall_back_to, later

T = TypeVar("T")

_HERE = __name__.rpartition(".")[0]


def _add(name: str, original: str | None, names: dict[str, Any] | None = None, submodules: tuple[str, ...] = ()) -> Any:
    """Add a module with the given names and the original module's names; import the original on first use."""
    module = ModuleType(f"{_HERE}.{name}", f"Replaces ``{name}``.")
    vars(module).update(names or {})
    if original is not None:
        module.__getattr__, module.__dir__ = fall_back_to(  # type: ignore[method-assign]  # functions of the module
            original, vars(module), submodules
        )
    sys.modules[module.__name__] = module
    return module


def find_module(name: str) -> ModuleSpec:
    """Return the location of a module, or raise ImportError, as ``imp.find_module`` did before Python 3.12."""
    spec = importlib.util.find_spec(name)
    if spec is None:
        raise ImportError(f"No module named {name!r}", name=name)
    return spec


ArgSpec = namedtuple("ArgSpec", "args varargs keywords defaults")


def getargspec(function: Callable[..., Any]) -> ArgSpec:
    """Return the names and defaults of a function's parameters, as ``inspect.getargspec`` did before Python 3.11."""
    import inspect

    spec = inspect.getfullargspec(function)
    if spec.kwonlyargs or spec.annotations:
        raise ValueError("Function has keyword-only parameters or annotations, use getfullargspec()")
    return ArgSpec(spec.args, spec.varargs, spec.varkw, spec.defaults)


def copy(value: T) -> T:
    """Make a shallow copy of an object.

    In NumPy 2, drawing from a shallow copy of a RandomState also advances the original. This function also copies the
    generator.
    """
    import copy as original

    import numpy

    return original.deepcopy(value) if isinstance(value, numpy.random.RandomState) else original.copy(value)


# ``theano.misc.pkl_utils`` sets these attributes, which Python 3.13.0 only allows on a subclass.
class Pickler(pickle.Pickler):
    """A Pickler whose ``persistent_id`` can be assigned."""


class Unpickler(pickle.Unpickler):
    """An Unpickler whose ``persistent_load`` can be assigned."""


def find_executable(executable: str, path: str | None = None) -> str | None:
    """Return the path of a program; None if the program is not found."""
    return shutil.which(executable, path=path)


def get_python_inc(plat_specific: bool = False, prefix: str | None = None) -> str:
    """Return the folder of Python's headers."""
    variables = {"base": prefix, "platbase": prefix} if prefix else None
    return sysconfig.get_path("platinclude" if plat_specific else "include", vars=variables)


def get_python_lib(plat_specific: bool = False, standard_lib: bool = False, prefix: str | None = None) -> str:
    """Return the folder of Python's own library, or of installed packages."""
    variables = {"base": prefix, "platbase": prefix} if prefix else None
    if standard_lib:
        return sysconfig.get_path("platstdlib" if plat_specific else "stdlib", vars=variables)
    return sysconfig.get_path("platlib" if plat_specific else "purelib", vars=variables)


def get_numpy_include_dirs() -> list[str]:
    """Return the folders of NumPy's headers."""
    import numpy

    return [numpy.get_include()]


# Names and modules that Python removed. A package with few names is one module, which also replaces its submodules.
_add("collections", "collections", {name: getattr(collections.abc, name) for name in collections.abc.__all__})
_add("configparser", "configparser", {"SafeConfigParser": ConfigParser})
_add("copy", "copy", {"copy": copy})
_add("imp", None, {"find_module": find_module})
_add("inspect", "inspect", {"ArgSpec": ArgSpec, "getargspec": getargspec})
_add("pickle", "pickle", {"Pickler": Pickler, "Unpickler": Unpickler})
_distutils = _add("distutils", None, {function.__name__: function for function in (find_executable, get_python_inc)})
_distutils.get_python_lib = get_python_lib
for _name in ("get_config_h_filename", "get_config_var", "get_config_vars", "get_python_version"):
    setattr(_distutils, _name, getattr(sysconfig, _name))
_distutils.spawn = _distutils.sysconfig = _distutils

# These packages are slow to import, and few programs use them.
_add("pdb", "pdb")
_add("unittest", "unittest")
_add("scipy", "scipy", submodules=("linalg",))
_add("scipy.linalg", "scipy.linalg", submodules=("blas",))
_BLAS = ("sgemv", "dgemv", "cgemv", "zgemv", "sger", "dger", "cgeru", "zgeru")
_blas = _add("scipy.linalg.blas", "scipy.linalg.blas", {name: later("scipy.linalg.blas", name) for name in _BLAS})
_blas.fblas = _blas  # Theano tries the name `fblas` first, SciPy's module in 2012
_SIGNALTOOLS = ("_valfrommode", "_bvalfromboundary", "convolve")
_signal = _add("scipy_signal", None, {name: later("scipy.signal._signaltools", name) for name in _SIGNALTOOLS})
_signal._convolve2d = later("scipy.signal._sigtools", "_convolve2d")

# NumPy 2 hides its core. Python 3.12 lacks numpy.distutils, whose verbosity Theano sets. BLAS is found by optdb, not by
# numpy.distutils.
_add("numpy.core", "numpy._core" if versions.needs_promotion() else "numpy.core")
_linalg = _add("numpy.linalg", "numpy.linalg")
_linalg.linalg = _linalg
_numpy_distutils = _add("numpy.distutils", None, {"verbosity": 0, "blas_opt_info": {}, "default_lib_dirs": []})
_numpy_distutils.get_numpy_include_dirs = get_numpy_include_dirs
_numpy_distutils.get_info = lambda name, notfound_action=0: {}
_numpy_distutils.__config__ = _numpy_distutils.misc_util = _numpy_distutils.system_info = _numpy_distutils
