"""With any NumPy, Theano infers the same types and folds the same values as with NumPy 1.23."""

from __future__ import annotations

import json

import pytest

from tests.host.theano.importing.compat import theano1
from tests.processes import run_code


@pytest.mark.slow
def test_types_and_folded_values_are_those_of_numpy_1():
    code = """
        import json
        import optdb
        from tests.host.theano.importing.compat.theano1 import inferred
        print(json.dumps(inferred()))
    """
    done = run_code(code, flags="cxx=,on_opt_error=ignore", env={"PYTHONWARNINGS": "ignore"})
    assert done.returncode == 0, done.stderr
    inferred = json.loads(done.stdout)
    wanted = theano1.TABLE.read_text().splitlines()
    assert len(inferred) == len(wanted) > 2000
    assert {name: got for (name, got), value in zip(inferred.items(), wanted) if got != value} == {}
