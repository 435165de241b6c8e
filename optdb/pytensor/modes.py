"""The modes 'OPENCL' and 'OPENCL_AUTO', and their linkers, which have the same names in lower case."""

from __future__ import annotations

import sys
import warnings
from typing import Any

from pytensor.compile.mode import Mode, register_linker, register_mode
from pytensor.graph.rewriting.db import RewriteDatabaseQuery

from optdb.pytensor.choosing import ChoosingLinker
from optdb.pytensor.linker import OpenCLLinker


class IgnoredModeWarning(UserWarning):
    """Warns that another library ignores the mode that it was given."""


class OpenCLMode(Mode):  # type: ignore[misc]  # PyTensor is not installed where types are checked
    """A mode whose functions run on a device; it warns if PyMC ignores the mode and samples with nutpie."""

    @property
    def linker(self) -> Any:
        asking = sys._getframe(1)  # if PyMC samples with nutpie, this is the frame of `pm.sample`
        is_sampling = asking.f_globals.get("__name__") == "pymc.sampling.mcmc"
        if is_sampling and asking.f_locals.get("sampler") == "nutpie":
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


def opencl_mode(device: str | None = None, auto: bool = False, random: str = "exact") -> Mode:
    """Return a mode whose functions run on a device.

    Parameters
    ----------
    device : str, optional
        Name of the device, as listed by `python -m optdb devices`; by default, the device that is likely to be the
        fastest.
    auto : bool
        Whether functions use PyTensor's default linker if that is faster, as in mode 'OPENCL_AUTO'.
    random : str
        'exact': random variables have the same values as in PyTensor; some, such as normal variables, are drawn on the
        host. 'device': the device draws such variables from the same generators, but with different values.

    Raises
    ------
    ValueError
        If `random` is neither 'exact' nor 'device', or if it is 'device' and `auto` is set.
    """
    if auto and random != "exact":
        raise ValueError("auto=True compares values with PyTensor's, so random must be 'exact'")
    linker = ChoosingLinker(device=device) if auto else OpenCLLinker(device=device, random=random)
    excluded = list(OpenCLLinker.incompatible_rewrites)
    return OpenCLMode(linker, RewriteDatabaseQuery(include=["fast_run"], exclude=excluded))


OPENCL = opencl_mode()
register_linker("opencl", OpenCLLinker())
register_mode("OPENCL", OPENCL)
register_linker("opencl_auto", ChoosingLinker())
register_mode("OPENCL_AUTO", opencl_mode(auto=True))
