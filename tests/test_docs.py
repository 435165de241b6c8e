"""Code on the documentation's pages runs and prints the shown output, links have targets, and the site builds."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import types
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.pages import PYTHON, blocks, commands, difference, first_paragraph, sentences
from tests.processes import python, run_code

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
SITE = sorted(path for path in DOCS.rglob("*.md") if "_build" not in path.parts)
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *SITE]

LINK = re.compile(r"\]\((?!https?:)([^)#]+)")
TOCTREE = re.compile(r"^```\{toctree\}\n(.*?)^```$", re.MULTILINE | re.DOTALL)

#: The width in columns of a code block that the site shows without a scroll bar.
COLUMNS = 88

#: README's maximum number of words, including code, which takes two and a half minutes to read.
README_WORDS = 600

#: Printed after each block, to separate the outputs of blocks.
MARK = "\x1e"


def _id(page: Path) -> str:
    return page.relative_to(DOCS).as_posix() if page.is_relative_to(DOCS) else page.name


#: Pages whose code every test run executes; each other page takes a process several seconds.
QUICK = ("README.md", "index.md", "flags.md", "cli.md", "from-theano-gpu.md")

#: Pages whose kernels compute for so long that the driver optimizes them.
OPTIMIZED = ("README.md", "pymc.md", "4-train-on-several-devices.md")

#: Pages whose code needs a library that is missing in other tests; `make test-pytensor` runs these pages.
NEEDED = {"pytensor.md": "pymc", "start/pymc.md": "pymc"}


def _marks(page: Path) -> tuple[pytest.MarkDecorator, ...]:
    if _id(page) in NEEDED:
        library = NEEDED[_id(page)]
        return (pytest.mark.skipif(find_spec(library) is None, reason=f"{library} is not installed"),)
    return () if page.name in QUICK else (pytest.mark.slow,)


#: A warning on standard error, with the name of its class.
WARNING = re.compile(r": (\w+Warning): ")


def run_blocks(text: str, optimized: bool = False) -> list[str]:
    """Run a page's Python in one process; return the differences between its output and the output on the page."""
    code = [block for block in blocks(text) if block.is_python]
    script = "".join(f"{block.body}\nprint({MARK!r}, end='', flush=True)\n" for block in code)
    done = run_code(script, env={"MPLBACKEND": "Agg", "COLUMNS": str(COLUMNS)}, optimized=optimized)
    assert done.returncode == 0, done.stderr
    unnamed = set(WARNING.findall(done.stderr)) - set(re.findall(r"\w+Warning", text))
    assert not unnamed, f"the page does not explain {unnamed}: {done.stderr}"
    printed = done.stdout.split(MARK)
    shown = ((block.shown, output) for block, output in zip(code, printed) if block.shown is not None)
    return [text for expected, output in shown if (text := difference(expected, output))]


def test_excerpts_are_in_the_files_that_they_name():
    found = 0
    for page in DOCS.rglob("*.md"):
        for block in blocks(page.read_text()):
            name, _, code = block.body.partition("\n")
            if block.info == "py" and name.startswith("# optdb/"):
                assert code.strip("\n") in (ROOT / name[2:]).read_text(), f"{page.name}: {name}"
                found += 1
    assert found >= 3


def run_commands(text: str) -> list[str]:
    """Run a page's commands that are shown with output; return the differences from the shown output."""
    env = {
        **os.environ,
        "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]),
        "PYTHONPATH": str(ROOT),
    }
    differences = []
    for command, shown in (pair for block in blocks(text) if block.info == "console" for pair in commands(block.body)):
        if shown.strip():
            done = subprocess.run(
                ["bash", "-c", command], env=env, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
            )
            differences.append(difference(shown, done.stdout))
    return [text for text in differences if text]


@pytest.mark.thorough_cases("tutorials/4-train-on-several-devices.md")
@pytest.mark.parametrize(
    "page",
    [
        pytest.param(page, marks=_marks(page))
        for page in PAGES
        if any(block.is_python for block in blocks(page.read_text()))
    ],
    ids=_id,
)
def test_code_runs_and_prints_what_the_page_shows(page):
    differences = run_blocks(page.read_text(), optimized=page.name in OPTIMIZED)
    assert not differences, "\n\n".join(differences)


@pytest.mark.parametrize(
    "page",
    [
        page
        for page in PAGES
        for block in blocks(page.read_text())
        if block.info == "console" and any(shown.strip() for _, shown in commands(block.body))
    ],
    ids=_id,
)
def test_commands_print_what_the_page_shows(page):
    differences = run_commands(page.read_text())
    assert not differences, "\n\n".join(differences)


def test_a_warning_has_to_be_explained():
    page = "```python\nimport warnings\nwarnings.warn('a')\n```\n"
    with pytest.raises(AssertionError, match=r"does not explain \{'UserWarning'\}"):
        run_blocks(page)
    assert run_blocks(f"{page}\nYou will see `UserWarning`.\n") == []


def test_an_output_that_differs_is_found():
    page = "```python\nprint(1, 22.5, 3)\n```\n\n```text\n1 ... {}\n```\n\n```python\nprint(4)\n```\n"
    assert run_blocks(page.format(3)) == []
    [found] = run_blocks(page.format(4))
    assert "1 ... 4" in found
    assert "1 22.5 3" in found
    console = "```console\n$ true\n$ echo a \\\n    b\na {}\n```\n"
    assert run_commands(console.format("b")) == []
    assert len(run_commands(console.format("c"))) == 1


@pytest.mark.parametrize("page", PAGES, ids=_id)
def test_outputs_stand_in_text_blocks(page):
    """Pages show outputs in text blocks: no test would compare a comment after a print with the output."""
    code = [block.body for block in blocks(page.read_text()) if block.is_python]
    assert re.findall(r"^ *print\(.*\) +#.*$", "\n".join(code), re.MULTILINE) == []


@pytest.mark.parametrize("page", PAGES, ids=_id)
def test_commands_leave_the_shell_as_it_was(page):
    """Pages set environment variables for one command only, because exported variables would affect the next steps."""
    shell = [block.body for block in blocks(page.read_text()) if block.info == "console"]
    assert re.findall(r"^\$.*\bexport\b.*$", "\n".join(shell), re.MULTILINE) == []


@pytest.mark.parametrize("page", PAGES, ids=_id)
def test_code_fits_the_page(page):
    too_long = [
        line
        for block in blocks(page.read_text())
        if block.info in (*PYTHON, "", "c", "console", "ini", "opencl", "sh", "text")
        for line in block.body.splitlines()
        if len(line) > COLUMNS
    ]
    assert too_long == []


def test_readme_is_short():
    assert len((ROOT / "README.md").read_text().split()) <= README_WORDS


@pytest.mark.parametrize("page", PAGES, ids=_id)
def test_links_lead_somewhere(page):
    missing = [link for link in LINK.findall(page.read_text()) if not (page.parent / link).exists()]
    assert missing == []


@pytest.mark.parametrize("page", [page for page in PAGES if _id(page) != "contributing.md"], ids=_id)
def test_the_first_paragraph_says_what_a_page_holds(page):
    paragraph = first_paragraph(page.read_text())
    assert paragraph, "a title, then a paragraph"
    assert not paragraph.startswith(("#", "|", "```", ":::", "- ", "$", ">")), (
        f"the page begins with {paragraph[:20]!r}, and not with a sentence"
    )
    assert 1 <= sentences(paragraph) <= 3, paragraph


def test_sentences_are_counted():
    page = "---\na: b\n---\n\n# Title\n\nOptdb 1.0 runs `a. B.` (e.g. this). It is quick.\n\nMore.\n"
    assert sentences(first_paragraph(page)) == 3  # `sentences` counts "e.g." as an end
    assert first_paragraph("Text.\n\n# Title\n") == ""


#: Words that readers had to read twice, and what to write instead.
UNWANTED = {
    r"this page is for\b": "what the page holds",
    r"\bafterwards you (?:can|know)\b": "what the page holds",
    r"\bas ever\b": "as before, or nothing",
    r"\b(?:is|are|was|were) told (?:of|anew)\b": "who reports what, or what is bound",
    r"\bbehind (?:the|each|every|a|that|another) (?:call|one|other|launch|node|step)\b": "after",
    r"\bof old\b": "former",
    r"\blets constructing\b": "the subject and an active verb",
    r"\bhas to say so\b": "what to call",
    r"\bwhere (?:it|they) lies?\b": "in place",
    r"\b(?:sees?|saw) to it that\b": "ensures that, or checks that",
    r"\bcomes? home\b|\bbrought home\b|\bcopied home\b": "is copied to the host",
    r"\bputs? the engine behind\b": "runs Theano's phases with optdb's engine",
    r"\bwho reads it needs\b": "the reader needs",
    r"\bto know\b:": "a heading that names the subject",
    r"\bthere is none\b": "what is missing, as the subject",
    r"\b(?:said|told)\b": "the name of the thing, or see",
    r"\bwhat is \w+ is\b": "the subject and an active verb",
}


@pytest.mark.parametrize("page", PAGES, ids=_id)
def test_pages_have_no_unwanted_words(page):
    text = " ".join(page.read_text().split())
    found = [
        f"{match[0]!r}: write {instead}"
        for pattern, instead in UNWANTED.items()
        for match in re.finditer(pattern, text, re.IGNORECASE)
    ]
    assert found == []


def test_every_page_is_in_the_contents():
    listed = [
        (page.parent / f"{line}.md").resolve()
        for page in SITE
        for tree in TOCTREE.findall(page.read_text())
        for line in tree.splitlines()
        if line and not line.startswith(":")
    ]
    assert sorted(listed) == sorted(set(SITE) - {DOCS / "index.md"})


@pytest.mark.slow
def test_the_reference_has_all_flags_and_commands(monkeypatch):
    pytest.importorskip("docutils")
    monkeypatch.syspath_prepend(str(DOCS / "_ext"))
    import optdb_reference

    from optdb import flags
    from optdb.cli import cli

    # Pass dummy arguments to the two directives, because they do not use the arguments from docutils.
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


def test_the_reference_has_the_names_for_pytensor(monkeypatch):
    pytest.importorskip("docutils")
    monkeypatch.syspath_prepend(str(DOCS / "_ext"))
    import optdb_reference

    described = dict(optdb_reference.pytensor_names())
    assert all(described.values())
    signature = "export(f: Any, path: str | Path, examples: Examples | None=None, "
    assert [name for name in described if name.startswith(signature)]
    assert {"OpenCLLinker", "is_enabled() -> bool"} <= set(described)


@pytest.mark.slow
def test_the_site_builds_without_a_warning(tmp_path):
    for package in ("sphinx", "myst_nb", "furo"):
        pytest.importorskip(package, reason="make docs installs it: pip install '.[docs]'")
    command = ["-m", "sphinx", "-W", "--keep-going", "-q", "-D", "nb_execution_mode=cache"]
    done = python(*command, "-d", str(tmp_path / "doctrees"), "-b", "html", str(DOCS), str(tmp_path / "html"))
    assert done.returncode == 0, done.stderr
    assert "optdb.device" in (tmp_path / "html" / "flags.html").read_text()
    assert (tmp_path / "html" / "searchindex.js").is_file()


def test_make_lists_its_targets():
    done = subprocess.run(["make", "--silent", "help"], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    for target in ("demo", "test", "test-all", "docs", "dist", "lint"):
        assert re.search(rf"^{target} +\w", done.stdout, re.MULTILINE)
