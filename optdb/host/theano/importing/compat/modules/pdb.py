"""``pdb``, which is imported when Theano starts it."""

from optdb.host.theano.importing.compat.modules._falling_back import fall_back_to

__getattr__, __dir__ = fall_back_to("pdb", globals())
