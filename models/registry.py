"""The table of models by name, with each model's builder, its library, and the flags that the library sets.

Importing `models.zoo` registers the models of its modules, but does not import the libraries.
"""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from profiles.models import Model

#: Maps the name of a library to the module that is imported from it.
LIBRARIES = {"Keras": "keras", "Lasagne": "lasagne", "PyMC3": "pymc3"}

Builder = Callable[..., Model]


class UnknownModel(KeyError):
    """Raised if the table has no model with a given name."""

    def __str__(self) -> str:
        return self.args[0]


class UnavailableLibrary(ImportError):
    """Raised if the library of a model is not installed."""


@dataclass(frozen=True)
class Entry:
    """A model in the table: its library and builder, and the floatX and flags that users of the library set."""

    name: str
    library: str
    builder: Builder
    floatX: str  # noqa: N815  (Theano's name)
    flags: Mapping[str, object] = field(default_factory=dict)

    @property
    def summary(self) -> str:
        """The first line of the builder's docstring."""
        return (self.builder.__doc__ or "").strip().partition("\n")[0]

    @property
    def available(self) -> bool:
        """Whether the library is installed."""
        return importlib.util.find_spec(LIBRARIES[self.library]) is not None


_entries: dict[str, Entry] = {}


def register(entry: Entry) -> None:
    """Add a model to the table; raise ValueError if the table has a model with the same name."""
    if entry.name in _entries:
        raise ValueError(f"a model named {entry.name!r} is registered already")
    _entries[entry.name] = entry


def known() -> list[str]:
    """Return the names of all models, whether or not their libraries are installed."""
    importlib.import_module("models.zoo")
    return list(_entries)


def available() -> list[str]:
    """Return the names of the models whose libraries are installed."""
    return [name for name in known() if _entries[name].available]


def entry(name: str) -> Entry:
    """Return the entry of a model; if there is no such model, raise `UnknownModel` with a list of names."""
    if name not in known():
        raise UnknownModel(f"no model is named {name!r}; known are: {', '.join(known())}")
    return _entries[name]


def build(name: str, **sizes: object) -> Model:
    """Build a model; `sizes` replace default sizes. Raise `UnavailableLibrary` if the library is not installed."""
    found = entry(name)
    if not found.available:
        raise UnavailableLibrary(
            f"{name} needs {found.library}: `make models` installs it into build/models-venv, "
            "or pip install --no-deps -r models/libraries.txt"
        )
    return found.builder(name, **sizes)
