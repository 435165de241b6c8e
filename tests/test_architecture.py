"""The arrows between optdb's folders: which imports which, and that what computes knows nothing of Theano."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

OPTDB = Path(__file__).resolve().parent.parent / "optdb"

#: For each folder, what it may import of the others; what is at the top (flags, the version) has no arrows.
ARROWS = {
    "runtime": set(),
    "codegen": {"runtime"},
    "host": set(),
    "cache": {"host"},
    "topo": {"cache", "host"},
    "lifters": {"topo", "cache", "host"},
    "opencl": {"lifters", "topo", "cache", "host", "codegen", "runtime"},
}

#: Files that do not yet keep to these. Whoever cures one removes it here.
EXCEPTIONS = {"host/bootstrap.py": {"cache", "topo"}}


def imported(source):
    """Return the full names of what a module imports, at its top, in functions and for type checkers."""
    names = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, "imports are absolute here"
            names.update(f"{node.module}.{alias.name}" for alias in node.names)
    return names


def rooms(names):
    """Return the folders of optdb that names are of."""
    parts = (name.split(".") for name in names)
    return {part[1] for part in parts if part[0] == "optdb" and len(part) > 1 and part[1] in ARROWS}


def modules(folder):
    return [(path, path.read_text()) for path in sorted((OPTDB / folder).rglob("*.py"))]


@pytest.mark.parametrize("folder", ARROWS)
def test_arrows(folder):
    wrong = {
        path.relative_to(OPTDB).as_posix(): rooms(imported(source)) - ARROWS[folder] - {folder}
        for path, source in modules(folder)
    }
    exceptions = {path: names for path, names in EXCEPTIONS.items() if path.startswith(f"{folder}/")}
    assert {path: names for path, names in wrong.items() if names} == exceptions


@pytest.mark.parametrize("folder", ["codegen", "runtime"])
def test_what_computes_imports_no_theano(folder):
    assert len(modules(folder)) > 20
    for path, source in modules(folder):
        assert not any(name.split(".")[0] == "theano" for name in imported(source)), path


def test_imports_are_found():
    source = "import theano.tensor\ndef f():\n    from optdb.host import graph\n    from optdb import cache, flags"
    assert imported(source) == {"theano.tensor", "optdb.host.graph", "optdb.cache", "optdb.flags"}
    assert rooms(imported(source)) == {"host", "cache"}
