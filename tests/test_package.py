"""``import optdb`` imports few modules, and provides the documented names."""

from __future__ import annotations

import configparser
import re
from pathlib import Path

import pytest

import optdb
from tests.processes import output

ROOT = Path(__file__).resolve().parent.parent


def test_import_brings_neither_theano_nor_numpy():
    assert output("import optdb, sys; print({'theano', 'numpy', 'rich', 'click'} & set(sys.modules))") == "set()"


@pytest.mark.slow
def test_a_public_name_brings_theano():
    assert output("import optdb, sys; optdb.enable; print('theano' in sys.modules)") == "True"


@pytest.mark.parametrize("name", optdb.__all__)
def test_every_public_name_is_there(name):
    assert getattr(optdb, name) is not None
    assert name in dir(optdb)


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        optdb.nonsense  # noqa: B018


def test_the_package_names_its_home_in_one_place():
    setup = configparser.ConfigParser()
    setup.read(ROOT / "setup.cfg")
    metadata = setup["metadata"]
    pages = dict(line.split(" = ") for line in metadata["project_urls"].split("\n") if line)
    assert {"Source", "Issues"} <= set(pages)
    assert all(page.startswith(metadata["url"]) for page in pages.values())
    assert "`Issues`" in (ROOT / "CONTRIBUTING.md").read_text()


def test_version_is_in_the_changelog():
    changelog = (ROOT / "CHANGELOG.md").read_text()
    assert f"## [{optdb.__version__}]" in changelog or "## [Unreleased]" in changelog
    assert re.fullmatch(r"\d+\.\d+\.\d+", optdb.__version__)


def test_only_host_imports_theano():
    importing = re.compile(r"^\s*(import theano|from theano)\b", re.MULTILINE)
    outside = [
        path.relative_to(ROOT).as_posix()
        for path in (ROOT / "optdb").rglob("*.py")
        if "host" not in path.parts and importing.search(path.read_text())
    ]
    assert outside == []


def test_headers_are_packaged():
    from optdb.host.theano.importing.compat.ccode import INCLUDE_DIR

    for name in ("theano_compat.h", "py311/longintrepr.h", "py312/longintrepr.h"):
        assert (INCLUDE_DIR / name).is_file()
