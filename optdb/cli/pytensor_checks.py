"""The checks of ``python -m optdb doctor`` for PyTensor, and the choice of checks for the installed hosts."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from importlib.util import find_spec

from optdb.cli import checks
from optdb.cli.checks import CheckFailed
from optdb.cli.terminal import verbatim
from optdb.host.theano.importing import support, trials
from optdb.runtime.errors import DeviceError

__all__ = ["ALONE", "BESIDE_THEANO", "changed_flags", "chosen_checks", "is_installed"]


def is_installed() -> bool:
    """Return whether PyTensor is installed."""
    return find_spec("pytensor") is not None


def _python() -> str:
    return support.found("Python") or ""


def _theano() -> str:
    cure = f"to use optdb with Theano:\n{verbatim(support.INSTALL_THEANO)}"
    raise CheckFailed("not installed, and not needed for PyTensor", cure, optional=True)


def _pytensor() -> str:
    try:
        versions = importlib.import_module("optdb.pytensor.versions")  # importing optdb.pytensor registers mode OPENCL
    except ImportError as error:
        raise CheckFailed(getattr(error, "finding", str(error)), verbatim(getattr(error, "cure", ""))) from error
    return f"{support.found('pytensor')}, of {versions.SUPPORTED}"


def _pymc() -> str:
    return _package("pymc", "6.4", "7", "to sample PyMC's models")


def _nutpie() -> str:
    return _package("nutpie", "0.16.10", "0.17", "to sample with nutpie")


def _package(name: str, lowest: str, below: str, purpose: str) -> str:
    """Import an optional package, and return its version."""
    version = support.found(name)
    install = f"python -m pip install 'optdb[{name}]'"
    cure = f"{purpose}:\n{verbatim(install)}"
    if version is None:
        raise CheckFailed("not installed", cure, optional=True)
    if not support.Requirement(name, lowest, below).admits(version):
        raise CheckFailed(f"{version}, not >={lowest},<{below}", cure, optional=True)
    try:
        importlib.import_module(name)
    except Exception as error:
        raise CheckFailed(f"{version} does not import: {error}", cure, optional=True) from error
    return version


def _default_mode() -> str:
    """Return the name of the compiler that PyTensor's default mode uses."""
    from pytensor.configdefaults import config

    version = support.found("numba")
    if version is None:
        compiler = config.cxx or "no compiler"
        raise CheckFailed(
            f"not installed: PyTensor's default mode uses {compiler}",
            verbatim("python -m pip install numba"),
            fatal=False,
        )
    return f"{version}, the compiler of PyTensor's default mode"


def _opencl() -> str:
    """List the devices. Mode OPENCL needs a device; `optdb.pytensor.enable` does not."""
    try:
        return checks._opencl()
    except CheckFailed as failure:
        if failure.mark != checks.OFF:
            raise
        raise CheckFailed(failure.finding, failure.cure) from failure


def _mode() -> str:
    import numpy as np
    import pytensor
    import pytensor.tensor as pt

    x = pt.vector("x", dtype="float32")
    computed = float(pytensor.function([x], pt.sqr(x).sum(), mode="OPENCL")(np.arange(4, dtype="float32")))
    if computed != 14.0:
        raise CheckFailed(f"computed {computed}, not 14", checks.REPORT_IT)
    return "computes a small function"


def _beside_theano() -> str:
    """Run all checks for mode OPENCL as one optional check, for environments that also contain Theano."""
    try:
        return f"{_pytensor()}: mode OPENCL {_mode()}"
    except CheckFailed as failure:
        raise CheckFailed(failure.finding, f"to use PyTensor:\n{failure.cure}", optional=True) from failure
    except DeviceError as error:
        raise CheckFailed("no device", "to use PyTensor: see the row OpenCL", optional=True) from error


#: The checks that follow the checks for Theano if PyTensor is also installed.
BESIDE_THEANO: dict[str, Callable[[], str]] = {"PyTensor": _beside_theano}
#: The checks if only PyTensor is installed. The checks listed after "OpenCL" need an OpenCL device.
ALONE: dict[str, Callable[[], str]] = {
    "pip": checks._pip,
    "Python": _python,
    "Theano": _theano,
    "PyTensor": _pytensor,
    "PyMC": _pymc,
    "numba": _default_mode,
    "nutpie": _nutpie,
    "OpenCL": _opencl,
    "kernel cache": checks._kernel_cache,
    "mode OPENCL": _mode,
}


def chosen_checks() -> dict[str, Callable[[], str]]:
    """Return the checks for the hosts that are installed; if neither Theano nor PyTensor is, return Theano's checks."""
    if not is_installed():
        return checks.CHECKS
    return ALONE if support.found("Theano") is None else {**checks.CHECKS, **BESIDE_THEANO}


def changed_flags() -> list[str]:
    """Return ``name=value`` for each of the host's flags that the user has set."""
    if support.found("Theano") is not None:
        return trials.changed_flags()
    if not is_installed():
        return []
    from pytensor.configdefaults import config

    return [f"{name}={flag.val}" for name, flag in config._config_var_dict.items() if not flag.is_default]
