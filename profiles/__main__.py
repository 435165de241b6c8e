"""``python -m profiles``: lists the command lines of this package."""

from __future__ import annotations

import importlib.util
import pkgutil
import sys
from collections.abc import Iterator
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.table import Table

import profiles

#: A module that can be run as a command ends with these lines.
START = '\nif __name__ == "__main__":\n'
#: Modules that are not listed: this module, and a module that only other modules start.
NO_COMMANDS = ("profiles.__main__", "profiles.isolated")


def commands() -> Iterator[tuple[str, str]]:
    """Yield the name of each module that can be run as a command, and the first line of the module's docstring."""
    for module in pkgutil.walk_packages(profiles.__path__, "profiles."):
        spec = importlib.util.find_spec(module.name)
        text = Path(spec.origin).read_text(encoding="utf-8") if spec is not None and spec.origin else ""
        if START in text and module.name not in NO_COMMANDS:
            yield module.name, text.removeprefix('"""').partition("\n")[0].removesuffix('"""')


def main() -> None:
    """Print the list of commands."""
    table = Table("command", title="python -m ..., each with --help", title_justify="left", box=None)
    table.add_column("description", overflow="fold")
    for name, what in commands():
        table.add_row(name, escape(what))
    Console().print(table)
    sys.exit(0 if sys.argv[1:] in ([], ["--help"]) else 2)


if __name__ == "__main__":
    main()
