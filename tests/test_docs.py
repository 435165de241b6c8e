"""The Python code in README.md and docs/ runs, all of a page in one process."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.processes import run_code

ROOT = Path(__file__).resolve().parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]

CODE = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\((?!https?:)([^)#]+)")


@pytest.mark.parametrize("page", [page for page in PAGES if CODE.search(page.read_text())], ids=lambda page: page.name)
def test_code_runs(page):
    code = "\n".join(CODE.findall(page.read_text()))
    done = run_code(code)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page):
    missing = [link for link in LINK.findall(page.read_text()) if not (page.parent / link).exists()]
    assert missing == []
