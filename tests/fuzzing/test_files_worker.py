"""Mutants of files have the drawn values at the drawn paths; every kind of text and member list is drawn."""

from __future__ import annotations

import os
import random
import stat
import sys

import pytest

from fuzzing.files import mutants
from fuzzing.files.corpus import corpus
from fuzzing.files.mutants import FORMS, REFUSED_FORMS, Mutant
from fuzzing.files.worker import remove, write

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="FIFOs and devices are those of Linux")


@pytest.mark.parametrize("form", FORMS)
def test_each_form_replaces_each_other(tmp_path, form):
    (original,) = corpus(tmp_path)
    path = tmp_path / "mutant"
    for other in FORMS:
        write(Mutant(original, "form", b"content", True, False, other, 100), path)
        write(Mutant(original, "form", b"content", True, False, form, 100), path)
        assert os.path.lexists(path) == (form != "missing")
        if form not in REFUSED_FORMS:
            mode = path.stat().st_mode
            assert stat.S_ISREG(mode) == (form in ("file", "link", "sparse", "memory"))
        if form in ("file", "link", "sparse"):
            assert path.read_bytes()[:7] == b"content"
        assert path.is_symlink() == (form in ("link", "zeros", "null", "terminal", "memory", "loop"))
        remove(path)
        assert list(tmp_path.iterdir()) == []


def test_each_form_is_drawn(tmp_path):
    originals = corpus(tmp_path)
    drawn = {mutants._of_form("form", originals[0], random.Random(number)).form for number in range(300)}
    assert drawn == {*FORMS} - {"file"}


@pytest.mark.parametrize("kind", ["text", "list"])
def test_texts_and_lists_are_drawn(tmp_path, kind):
    originals = corpus(tmp_path)
    make = mutants._KINDS[kind][1]
    contents = {make(kind, originals[0], random.Random(number)).content for number in range(300)}
    assert len(contents) > 200
