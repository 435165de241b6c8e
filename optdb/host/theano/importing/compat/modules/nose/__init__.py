"""The parts of ``nose`` that Theano's tests use: it cannot be imported from Python 3.12 on."""

from optdb.host.theano.importing.compat.modules.nose import plugins, tools
from optdb.host.theano.importing.compat.modules.nose.plugins.skip import SkipTest

__all__ = ["SkipTest", "plugins", "tools"]
