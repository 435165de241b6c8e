"""The parts of ``distutils`` that Theano uses: Python 3.12 removed the package."""

from optdb.host.theano.importing.compat.modules.distutils import spawn, sysconfig

__all__ = ["spawn", "sysconfig"]
