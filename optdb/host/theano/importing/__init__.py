"""Makes ``import theano`` work: checks versions, translates source, finds a BLAS, adds flags and corrects faults."""
