"""What is exchanged in Theano so that it takes less time: one cost and its cure a file."""
