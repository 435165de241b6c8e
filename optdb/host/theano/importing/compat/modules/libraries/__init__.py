"""Targets of redirected imports in libraries that use Theano.

`optdb.host.theano.importing.compat.libraries` lists the modules for each library.
"""
