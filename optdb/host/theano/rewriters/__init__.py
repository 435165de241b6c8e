"""Facts about Theano's rewriters, and changes to them."""
