"""``collections`` with the abstract classes that moved to ``collections.abc``."""

import collections
from collections.abc import *  # noqa: F403

from optdb.host.theano.importing.compat.modules._falling_back import fall_back_to

__getattr__, __dir__ = fall_back_to(collections, globals())
