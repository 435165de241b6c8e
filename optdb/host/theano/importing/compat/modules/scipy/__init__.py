"""``scipy`` for modules of Theano that use few of its functions; SciPy is imported when one of them is called."""

from optdb.host.theano.importing.compat.modules._falling_back import fall_back_to

__getattr__, __dir__ = fall_back_to("scipy", globals(), submodules=["linalg"])
