"""What is known of Theano's rewriters, and what is changed in them."""
