"""The modes 'OPENCL' and 'OPENCL_AUTO', and their linkers, which have the same names in lower case."""

from __future__ import annotations

import sys
import warnings
from types import FrameType
from typing import Any

from pytensor.compile.mode import Mode, register_linker, register_mode
from pytensor.graph.rewriting.db import RewriteDatabaseQuery

from optdb.pytensor.choosing import ChoosingLinker
from optdb.pytensor.linker import OpenCLLinker

__all__ = ["OPENCL", "IgnoredModeWarning", "opencl_mode"]


class IgnoredModeWarning(UserWarning):
    """Warns that another library ignores the mode that it was given."""


class OpenCLMode(Mode):  # type: ignore[misc]  # PyTensor is not installed where types are checked
    """A mode whose functions run on a device.

    Before nutpie compiles a model, PyMC reads the mode's linker, and drops the mode unless the linker is JAX's. In this
    case, reading the linker issues a warning.
    """

    @property
    def linker(self) -> Any:
        """The linker of the functions."""
        asking = sys._getframe(1)
        if _drops_modes(asking):
            warnings.warn(
                "pm.sample with nuts_sampler='nutpie' ignores compile_kwargs={'mode': 'OPENCL'}: nutpie compiles "
                "the model with numba. The cure: nutpie.sample(optdb.pytensor.compile_nutpie(model)), or "
                "nuts_sampler='pymc'",
                IgnoredModeWarning,
                stacklevel=4,
            )
        return self._linker

    @linker.setter
    def linker(self, linker: Any) -> None:
        self._linker = linker


def _drops_modes(frame: FrameType) -> bool:
    """Return whether a frame is the one in which `pm.sample` calls nutpie."""
    return frame.f_globals.get("__name__") == "pymc.sampling.mcmc" and frame.f_locals.get("sampler") == "nutpie"


def opencl_mode(device: str | None = None, auto: bool = False, random: str = "exact") -> Mode:
    """Return a mode whose functions run on a device.

    Parameters
    ----------
    device : str, optional
        Name of the device, as listed by `python -m optdb devices`; by default, the one that is likely the fastest.
    auto : bool
        Whether functions use PyTensor's default linker where that is faster, as in mode 'OPENCL_AUTO'.
    random : str
        'exact': random variables have the values that PyTensor draws from the same generators. Distributions that
        consume a varying number of random numbers, such as the normal distribution, are drawn on the host. 'device':
        the device draws from some of these distributions by other methods. The draws then have other values from the
        same distribution, which depend only on the state of the generator.

    Raises
    ------
    ValueError
        If `random` is neither 'exact' nor 'device', or if it is 'device' and `auto` is set, since `auto` compares the
        device's values with PyTensor's.
    """
    if auto and random != "exact":
        raise ValueError("auto=True compares values with PyTensor's, so random must be 'exact'")
    linker = ChoosingLinker(device=device) if auto else OpenCLLinker(device=device, random=random)
    excluded = list(OpenCLLinker.incompatible_rewrites)
    return OpenCLMode(linker, RewriteDatabaseQuery(include=["fast_run"], exclude=excluded))


#: The mode of the default device.
OPENCL = opencl_mode()
register_linker("opencl", OpenCLLinker())
register_mode("OPENCL", OPENCL)
register_linker("opencl_auto", ChoosingLinker())
register_mode("OPENCL_AUTO", opencl_mode(auto=True))
