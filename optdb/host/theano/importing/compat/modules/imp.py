"""The part of ``imp`` that Theano uses; Python 3.12 removed the module."""

import importlib.util
from importlib.machinery import ModuleSpec


def find_module(name: str) -> ModuleSpec:
    """Return where a module comes from.

    Raises
    ------
    ImportError
        If there is no such module.
    """
    spec = importlib.util.find_spec(name)
    if spec is None:
        raise ImportError(f"No module named {name!r}", name=name)
    return spec
