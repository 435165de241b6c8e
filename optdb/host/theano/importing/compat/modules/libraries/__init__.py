"""The targets of redirected imports of the libraries on top of Theano, in addition to those of Theano.

`optdb.host.theano.importing.compat.libraries` lists which library imports which of these modules. Nothing else imports
them.
"""
