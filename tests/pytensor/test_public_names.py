"""If PyTensor is the host, optdb's public functions for Theano raise errors that name the functions to use instead."""

from __future__ import annotations

import pytest

import optdb
import optdb.pytensor
from optdb.host import FOR_PYTENSOR
from tests.processes import run_code


@pytest.mark.parametrize("name", FOR_PYTENSOR)
def test_the_error_says_what_to_call_instead(name):
    with pytest.raises(ImportError) as caught:
        getattr(optdb, name)
    first, *_ = str(caught.value).splitlines()
    assert first == f"optdb.{name} takes functions of Theano. For functions of PyTensor: {FOR_PYTENSOR[name]}"


def test_the_first_line_of_the_output_says_it():
    done = run_code("import optdb; optdb.SimulatorOCL(None)")
    assert done.stderr.count("Traceback") == 1
    assert "HostNotInstalled: optdb.SimulatorOCL takes functions of Theano. For functions" in done.stderr
    assert done.stderr.rstrip().endswith("The cure: python -m optdb install-theano")
