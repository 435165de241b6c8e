"""What is asked of a function on a device: whether its steps are right, where time and memory go."""
