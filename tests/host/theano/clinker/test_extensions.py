"""optdb finds out which of the extensions that Theano builds in its compiledir are complete."""

from __future__ import annotations

import pytest

from optdb.host.theano.clinker.extensions import EXTENSIONS, is_built


@pytest.mark.parametrize("name", EXTENSIONS.values())
def test_an_extension_is_whole_when_theano_has_written_its_version(tmp_path, name):
    assert not is_built(tmp_path, name)
    folder = tmp_path / name
    folder.mkdir()
    assert not is_built(tmp_path, name)
    (folder / "mod.cpp").touch()
    assert not is_built(tmp_path, name)
    (folder / f"{name}.so").touch()
    (folder / "__init__.py").touch()
    assert is_built(tmp_path, name) == (name == "cutils_ext")
    (folder / "__init__.py").write_text("_version = 0.2\n")
    assert is_built(tmp_path, name)
