"""Targets of redirected imports that libraries built on Theano need, besides those for Theano's own modules.

`optdb.host.theano.importing.compat.libraries` lists which library imports which of these modules. Nothing else imports
them.
"""
