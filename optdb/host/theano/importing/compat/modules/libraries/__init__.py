"""The targets of redirected imports of the libraries on top of Theano, in addition to the targets for Theano's modules.

`optdb.host.theano.importing.compat.libraries` lists which library imports which of these modules. Nothing else imports
them.
"""
