"""``xarray`` for PyMC3, which uses its Dataset class; if xarray is missing, that class has no instances."""

from typing import Any

from optdb.host.theano.importing.compat.modules._falling_back import Optional

_package = Optional("xarray", "pip install xarray")

Dataset = _package.make_class("Dataset")


def __getattr__(name: str) -> Any:
    return _package.get(name)
