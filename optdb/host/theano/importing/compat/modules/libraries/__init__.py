"""What imports of the libraries on top of Theano are redirected to, besides what Theano's are.

`optdb.host.theano.importing.compat.libraries` lists which library imports which of these modules. Nothing else imports
them.
"""
