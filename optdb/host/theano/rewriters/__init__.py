"""Facts about Theano's rewriters."""
