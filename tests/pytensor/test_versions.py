"""`import optdb.pytensor` accepts only some versions of PyTensor."""

from __future__ import annotations

import configparser
import subprocess
import sys
from pathlib import Path

import pytensor
import pytest

from optdb.pytensor import versions

#: The message names this environment's Python, because PATH can contain another environment's `pip`.
CURE = f"The cure: {sys.executable} -m pip install 'pytensor>=3.3,<3.4'"


@pytest.mark.parametrize("version", ["3.3", "3.3.8", "3.3.99+5.gabc"])
def test_supported_ones_pass(monkeypatch, version):
    monkeypatch.setattr(pytensor, "__version__", version)
    versions.check()


@pytest.mark.parametrize("version", ["2.38.1", "3.2.9", "3.4.0", "3.10.0", "4.0"])
def test_others_are_refused_with_the_cure(monkeypatch, version):
    monkeypatch.setattr(pytensor, "__version__", version)
    with pytest.raises(versions.UnsupportedPyTensor) as caught:
        versions.check()
    assert f"PyTensor {version} is installed; optdb supports PyTensor >=3.3,<3.4." in str(caught.value)
    assert str(caught.value).endswith(CURE)


def test_an_older_python_needs_another_environment(monkeypatch):
    monkeypatch.setattr(sys, "version_info", (3, 11, 7))
    assert versions.UnsupportedPyTensor("it is missing").cure == "make a virtual environment with Python 3.12 or later"


def test_without_pytensor_the_import_says_so():
    code = "import sys; sys.modules['pytensor'] = None; import optdb.pytensor"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 1
    assert done.stderr.strip().endswith(CURE)


def test_the_extra_asks_for_them():
    setup = configparser.ConfigParser()
    setup.read(Path(__file__).parents[2] / "setup.cfg")
    assert f"pytensor{versions.SUPPORTED}" in setup["options.extras_require"]["pytensor"].split()
