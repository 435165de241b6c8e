"""The ``optdb.*`` flags, declared as data.

A flag is set in ``THEANO_FLAGS`` or ``.theanorc``, section ``optdb``, as Theano's own
flags are. Nothing here imports Theano: ``optdb.host.flags`` takes `FLAGS` from here and
registers them, and the command line puts what it insists on into `FORCED`.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

#: Each text that stands for a value, the one to show first. The same as Theano's.
BOOL = (
    ("True", True),
    ("False", False),
    ("true", True),
    ("false", False),
    ("1", True),
    ("0", False),
)


class FlagError(ValueError):
    """A flag that does not exist, or a value that a flag does not take."""


@dataclass(frozen=True)
class Flag:
    """One flag: what it is called, which values it takes, and what it does.

    Parameters
    ----------
    name : str
        The full name, with its section.
    default : object
        The value where the user says nothing.
    doc : str
        What it does, in a sentence or two, as shown by ``print(theano.config)``.
    spellings : tuple of (str, object)
        Each text that the user may write, and the value it stands for.
    live : bool
        Whether it may still be changed after Theano is imported.
    """

    name: str
    default: Any
    doc: str
    spellings: tuple[tuple[str, Any], ...] = BOOL
    live: bool = True

    @property
    def allowed(self) -> str:
        """The values it takes, each by its first spelling, ready to print."""
        shown: dict[Any, str] = {}
        for text, value in self.spellings:
            shown.setdefault(value, text)
        return " or ".join(shown.values())

    def parse(self, value: object) -> Any:
        """Turn what the user wrote into the flag's value.

        Raises
        ------
        FlagError
            If the flag takes no such value.
        """
        for text, meaning in self.spellings:
            if text == str(value):
                return meaning
        raise FlagError(f"{self.name}={value}: {self.name} is {self.allowed}")


FLAGS: tuple[Flag, ...] = (
    Flag(
        "optdb.topo",
        False,
        "Put optdb's topological engine behind Theano's rewrite phases, from the moment "
        "Theano is imported. Later, optdb.enable() and optdb.disable() do it.",
        live=False,
    ),
    Flag(
        "optdb.op_cache",
        False,
        "Let constructing an op give the one object that is like it, from the moment Theano "
        "is imported. Later, optdb.cache.install() and optdb.cache.uninstall() do it.",
        live=False,
    ),
    Flag(
        "optdb.shapes",
        True,
        "Let rewriters ask for symbolic shapes (Theano's ShapeFeature). Without it optdb "
        "compiles sooner, and lengths that could be told from the inputs are computed from arrays.",
    ),
    Flag(
        "optdb.trace",
        False,
        "Print each rewrite that optdb's engine makes, as it makes it.",
    ),
)

#: Values that go above THEANO_FLAGS and .theanorc, by flag name. They take effect when
#: Theano is imported.
FORCED: dict[str, Any] = {}


def unknown(name: str, known: Iterable[str]) -> FlagError:
    """Make the error for a flag that nobody declared.

    Parameters
    ----------
    name : str
        What the user wrote.
    known : iterable of str
        The flags that there are.
    """
    known = sorted(known)
    near = difflib.get_close_matches(name, known, n=1)
    if near:
        return FlagError(f"{name}: no such flag; did you mean {near[0]}?")
    return FlagError(f"{name}: no such flag; there are {', '.join(known)}")
