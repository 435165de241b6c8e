"""Registers the flags of ``optdb.flags`` in ``theano.config``.

The functions take ``theano.configparser`` as a parameter instead of importing it, because an import after a failed
import of Theano creates a new module.
"""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Collection, Iterator
from types import ModuleType

from optdb import flags, trace_log
from optdb.callers import caller_level

#: Theano's own flags in the section ``optdb``. Theano registers them after optdb's flags are checked.
THEANO_FLAGS = ("optdb.max_use_ratio", "optdb.position_cutoff")


class _FlagReader:
    """Parses a flag's value for Theano, which also prints this object as the flag's type."""

    def __init__(self, flag: flags.Flag) -> None:
        self.flag = flag
        self._is_read = False

    def __call__(self, value: object) -> object:
        if self._is_read and not self.flag.live:
            raise self.flag.cannot_change(value)
        parsed = self.flag.parse(value)
        self._is_read = True
        if self.flag.name == "optdb.trace":
            trace_log.use(flags.traced_topics(parsed))
        return parsed

    def __str__(self) -> str:
        return self.flag.allowed


def register(configparser: ModuleType) -> None:
    """Add optdb's flags to ``theano.config`` and check the flags that the user has set.

    Raises
    ------
    optdb.flags.FlagError
        If the user has set an unknown ``optdb.*`` flag, or has set a known flag to an invalid value.
    """
    flag_names = {flag.name for flag in flags.FLAGS}.union(THEANO_FLAGS)
    for name in _set_by_user(configparser):
        if name not in flag_names:
            raise flags.unknown(name, flag_names)

    for flag in flags.FLAGS:
        if flag.name in flags.FORCED:
            # Parse the user's value, which is overridden, only to raise an error if the value is invalid.
            with contextlib.suppress(KeyError):
                flag.parse(configparser.fetch_val_for_key(flag.name))
            configparser.THEANO_FLAGS_DICT[flag.name] = flags.FORCED[flag.name]
        configparser.AddConfigVar(
            flag.name,
            flag.doc,
            configparser.TypedParam(flag.default, _FlagReader(flag)),
            # The flags affect graphs, but never the C code of an op.
            in_c_key=False,
        )
    _refuse_unknown_fields(type(configparser.config.optdb), flag_names)


def _refuse_unknown_fields(section: type, flag_names: Collection[str]) -> None:
    """Make assignments to unknown flags raise FlagError instead of adding an attribute."""

    def set_flag(config: object, name: str, value: object) -> None:
        if not hasattr(section, name):
            raise flags.unknown(f"optdb.{name}", flag_names)
        object.__setattr__(config, name, value)

    section.__setattr__ = set_flag  # type: ignore[assignment, method-assign]


def warn_without_section(configparser: ModuleType) -> None:
    """Warn about optdb's flags with a missing or misspelt section."""
    for name in configparser.THEANO_FLAGS_DICT:
        guess = flags.misspelt_section(name)
        if guess:
            warnings.warn(f"{name}: no such flag; {guess}", stacklevel=caller_level())


def _set_by_user(configparser: ModuleType) -> Iterator[str]:
    section = "optdb"
    for name in configparser.THEANO_FLAGS_DICT:
        if name.startswith(f"{section}."):
            yield name

    files = configparser.theano_raw_cfg
    if not files.has_section(section):
        return
    for option in files.options(section):
        # configparser lists the file's [DEFAULT] entries under every section.
        if option not in files.defaults():
            yield f"{section}.{option}"
