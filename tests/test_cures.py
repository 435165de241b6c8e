"""Each command in an error message or a document can be pasted into a shell."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
#: The folders of Python code, apart from the tests.
FOLDERS = ("optdb", "conformance", "emulation", "examples", "fuzzing", "memcheck", "models", "profiles")
SOURCES = sorted(path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py"))
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]

#: Matches a setting or requirement with characters that a shell would interpret outside of quotes.
UNQUOTED = re.compile(r"""(?<!['"])(THEANO_FLAGS=[^\s'"`]*[<>;|&()\[\]*][^\s'"`]*|pip install [^\s'"`]*\[)""")


def _texts(path: Path) -> list[str]:
    """Return a module's string constants, which users may see."""
    return [
        node.value
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    ]


@pytest.mark.parametrize("text", ["THEANO_FLAGS=optdb.contexts=a->b", "pip install optdb[all]", "THEANO_FLAGS=x=a;b"])
def test_the_rule_finds_what_a_shell_would_break(text):
    assert UNQUOTED.search(f"The cure: {text}")


@pytest.mark.parametrize("text", ["THEANO_FLAGS='optdb.contexts=a->b'", "pip install 'optdb[all]'", "THEANO_FLAGS=a=b"])
def test_the_rule_passes_what_a_shell_takes(text):
    assert not UNQUOTED.search(f"The cure: {text}")


@pytest.mark.slow
def test_messages():
    broken = [(path.name, text) for path in SOURCES for text in _texts(path) if UNQUOTED.search(text)]
    assert broken == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_documents(page):
    assert UNQUOTED.findall(page.read_text()) == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_documents_install_from_the_checkout(page):
    """Pages do not install optdb from a package index; only `install.md` explains the name `optdb[opencl]`."""
    explained = {"optdb[opencl]"} if page.name == "install.md" else set()
    assert set(re.findall(r"pip\s+install\s+[^`\n]*?(optdb\[\w+\])", page.read_text())) == explained
