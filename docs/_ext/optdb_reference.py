"""Sphinx directives that make the reference of flags, commands and short device names from the code.

``{optdb-flags}`` is a table of `optdb.flags.FLAGS`; ``{optdb-commands}`` has a section for each command of
``python -m optdb``, with what its ``--help`` says; ``{optdb-devices}`` is a table of the short names of drivers;
``{optdb-pytensor}`` is a table of the public names of `optdb.pytensor`, whose source is read: the site is built
where PyTensor is not installed.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import click
from docutils import nodes
from docutils.parsers.rst import Directive

import optdb
from optdb import flags
from optdb.cli import cli


class FlagsDirective(Directive):
    """A table of all flags."""

    def run(self) -> list[nodes.Node]:
        """Return the table."""
        rows = [
            (
                nodes.literal(text=flag.name),
                nodes.Text(flag.allowed),
                nodes.literal(text=str(flag.default))
                if flag.default != ""
                else nodes.Text("nothing"),
                nodes.Text("yes" if flag.live else "no"),
                nodes.Text(flag.doc),
            )
            for flag in flags.FLAGS
        ]
        return [
            table(
                (
                    "flag",
                    "values",
                    "default",
                    "may change after import",
                    "what it does",
                ),
                rows,
            )
        ]


class DevicesDirective(Directive):
    """A table of the short names of drivers."""

    def run(self) -> list[nodes.Node]:
        """Return the table."""
        from optdb.runtime.devices import SHORT_NAMES

        rows = [
            (nodes.literal(text=name), nodes.Text(part))
            for name, part in SHORT_NAMES.items()
        ]
        return [
            table(
                ("short name", "part of the platform's name, in upper or lower case"),
                rows,
            )
        ]


class CommandsDirective(Directive):
    """A section for each command, as its help says."""

    def run(self) -> list[nodes.Node]:
        """Return the sections."""
        return [
            section_of(name, command) for name, command in sorted(cli.commands.items())
        ]


class PyTensorDirective(Directive):
    """A table of the public names of `optdb.pytensor`."""

    def run(self) -> list[nodes.Node]:
        """Return the table."""
        rows = [
            (nodes.literal(text=signature), nodes.Text(summary))
            for signature, summary in pytensor_names()
        ]
        return [table(("name", "what it does"), rows)]


def pytensor_names() -> Iterator[tuple[str, str]]:
    """Yield each public function and class of `optdb.pytensor` with its signature and its docstring's first line."""
    package = Path(optdb.__file__).parent / "pytensor"
    body = ast.parse((package / "__init__.py").read_text()).body
    [public] = [
        ast.literal_eval(node.value)
        for node in body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__"
    ]
    modules = {
        alias.name: package / f"{node.module.rpartition('.')[2]}.py"
        for node in body
        if isinstance(node, ast.ImportFrom) and node.module
        for alias in node.names
    }
    for name in public:
        for node in ast.parse(modules[name].read_text()).body:
            if isinstance(node, (ast.ClassDef, ast.FunctionDef)) and node.name == name:
                yield described(node)


def described(definition: ast.ClassDef | ast.FunctionDef) -> tuple[str, str]:
    """Return the signature and the summary of a definition."""
    summary = (ast.get_docstring(definition) or "").partition("\n\n")[0]
    summary = " ".join(summary.replace("`", "").split())
    if isinstance(definition, ast.ClassDef):
        return definition.name, summary
    returns = f" -> {ast.unparse(definition.returns)}" if definition.returns else ""
    return f"{definition.name}({ast.unparse(definition.args)}){returns}", summary


def section_of(name: str, command: click.Command) -> nodes.section:
    """Return a command's usage, help and options."""
    context = click.Context(command, info_name=f"python -m optdb {name}")
    section = nodes.section(ids=[f"command-{name}"])
    section += nodes.title(text=name)
    section += nodes.literal_block(
        text=command.get_usage(context).removeprefix("Usage: "), language="console"
    )
    section += [
        nodes.paragraph(text=" ".join(part.split()))
        for part in (command.help or "").split("\n\n")
    ]
    rows = [
        (nodes.literal(text=option), nodes.Text(text))
        for option, text in filter(
            None, (parameter.get_help_record(context) for parameter in command.params)
        )
    ]
    if rows:
        section += table(("option", "what it does"), rows)
    return section


def table(head: Iterable[str], rows: Iterable[Iterable[nodes.Node]]) -> nodes.table:
    """Return a table of cells of text."""
    head = tuple(head)
    group = nodes.tgroup(cols=len(head))
    group += [nodes.colspec(colwidth=1) for _ in head]
    group += nodes.thead("", _row(nodes.Text(title) for title in head))
    group += nodes.tbody("", *_rows(rows))
    return nodes.table("", group)


def _rows(rows: Iterable[Iterable[nodes.Node]]) -> Iterator[nodes.row]:
    for row in rows:
        yield _row(row)


def _row(cells: Iterable[nodes.Node]) -> nodes.row:
    row = nodes.row()
    for cell in cells:
        row += nodes.entry("", nodes.paragraph("", "", cell))
    return row


def setup(app: Any) -> dict[str, Any]:
    """Register the directives."""
    app.add_directive("optdb-flags", FlagsDirective)
    app.add_directive("optdb-commands", CommandsDirective)
    app.add_directive("optdb-devices", DevicesDirective)
    app.add_directive("optdb-pytensor", PyTensorDirective)
    return {"parallel_read_safe": True}
