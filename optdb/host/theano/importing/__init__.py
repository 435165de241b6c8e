"""What makes ``import theano`` work here: versions, translation, BLAS, flags, corrections."""
