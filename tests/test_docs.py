"""The documentation: the Python code of a page runs in one process, links lead somewhere, and the site builds."""

from __future__ import annotations

import re
import subprocess
import types
from pathlib import Path

import pytest

from tests.processes import python, run_code

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
SITE = sorted(path for path in DOCS.rglob("*.md") if "_build" not in path.parts)
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *SITE]

CODE = re.compile(r"^```(?:python|\{code-cell\} ipython3)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\((?!https?:)([^)#]+)")
TOCTREE = re.compile(r"^```\{toctree\}\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def _id(page: Path) -> str:
    return page.relative_to(DOCS).as_posix() if page.is_relative_to(DOCS) else page.name


#: Pages whose code every run of the tests runs; each of the others takes a process some seconds.
QUICK = ("README.md", "flags.md", "cli.md", "from-theano-gpu.md")


@pytest.mark.parametrize(
    "page",
    [
        pytest.param(page, marks=() if page.name in QUICK else pytest.mark.slow)
        for page in PAGES
        if CODE.search(page.read_text())
    ],
    ids=_id,
)
def test_code_runs(page):
    code = "\n".join(CODE.findall(page.read_text()))
    done = run_code(code, env={"MPLBACKEND": "Agg"})
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("page", PAGES, ids=_id)
def test_links_lead_somewhere(page):
    missing = [link for link in LINK.findall(page.read_text()) if not (page.parent / link).exists()]
    assert missing == []


@pytest.mark.parametrize("page", [page for page in SITE if page.name != "contributing.md"], ids=_id)
def test_the_first_screen_says_for_whom_a_page_is(page):
    first_screen = "\n".join(page.read_text().removeprefix("---\nfile_format: mystnb\n").splitlines()[:16])
    assert "This page is for those who" in first_screen
    assert "Afterwards" in first_screen


def test_every_page_is_in_the_contents():
    listed = {
        line
        for tree in TOCTREE.findall((DOCS / "index.md").read_text())
        for line in tree.splitlines()
        if line and not line.startswith(":")
    }
    assert listed == {page.relative_to(DOCS).with_suffix("").as_posix() for page in SITE} - {"index"}


def test_the_reference_has_all_flags_and_commands(monkeypatch):
    pytest.importorskip("docutils")
    monkeypatch.syspath_prepend(str(DOCS / "_ext"))
    import optdb_reference

    from optdb import flags
    from optdb.cli import cli

    # What docutils hands to a directive; these two ask nothing of it.
    machine = types.SimpleNamespace(reporter=None)
    [table] = optdb_reference.FlagsDirective("optdb-flags", [], {}, [], 1, 0, "", None, machine).run()
    for flag in flags.FLAGS:
        assert flag.name in table.astext()
        assert flag.doc in table.astext()
    sections = optdb_reference.CommandsDirective("optdb-commands", [], {}, [], 1, 0, "", None, machine).run()
    assert {section[0].astext() for section in sections} == set(cli.commands)
    [run] = [section for section in sections if section[0].astext() == "run"]
    assert "--topo / --no-topo" in run.astext()
    assert "python -m optdb run" in run.astext()


@pytest.mark.slow
def test_the_site_builds_without_a_warning(tmp_path):
    for package in ("sphinx", "myst_nb", "furo"):
        pytest.importorskip(package, reason="make docs installs it: pip install '.[docs]'")
    command = ["-m", "sphinx", "-W", "--keep-going", "-q", "-D", "nb_execution_mode=cache"]
    done = python(*command, "-d", str(tmp_path / "doctrees"), "-b", "html", str(DOCS), str(tmp_path / "html"))
    assert done.returncode == 0, done.stderr
    assert "optdb.device" in (tmp_path / "html" / "reference" / "flags.html").read_text()
    assert (tmp_path / "html" / "searchindex.js").is_file()


def test_make_lists_its_targets():
    done = subprocess.run(["make", "--silent", "help"], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    for target in ("demo", "test", "test-all", "docs", "dist", "lint"):
        assert re.search(rf"^{target} +\w", done.stdout, re.MULTILINE)
