"""These tests need PyTensor: ``make test-pytensor`` runs them."""

from __future__ import annotations

from importlib.util import find_spec

collect_ignore_glob = [] if find_spec("pytensor") else ["test_*.py"]
