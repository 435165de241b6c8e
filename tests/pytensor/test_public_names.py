"""The errors of optdb's public names for Theano's functions if PyTensor is the host."""

from __future__ import annotations

import pytest

import optdb
import optdb.pytensor
from optdb.host import FOR_PYTENSOR


@pytest.mark.parametrize("name", FOR_PYTENSOR)
def test_the_error_says_what_to_call_instead(name):
    with pytest.raises(ImportError) as caught:
        getattr(optdb, name)
    assert str(caught.value).endswith(f"For functions of PyTensor: {FOR_PYTENSOR[name]}")
