"""``pickle`` with picklers whose functions for persistent objects can be assigned as attributes.

``theano.misc.pkl_utils`` assigns ``pickler.persistent_id`` and ``unpickler.persistent_load``. In Python 3.13.0 these
attributes of the original classes are read-only, but instances of a subclass can set them.
"""

import pickle

from optdb.host.theano.importing.compat.modules._falling_back import fall_back_to


class Pickler(pickle.Pickler):
    """Write pickles; ``persistent_id`` can be assigned."""


class Unpickler(pickle.Unpickler):
    """Read pickles; ``persistent_load`` can be assigned."""


__getattr__, __dir__ = fall_back_to(pickle, globals())
