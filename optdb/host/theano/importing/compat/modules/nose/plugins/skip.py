"""``nose.plugins.skip``."""

from unittest import SkipTest

__all__ = ["SkipTest"]
