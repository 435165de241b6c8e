"""A state machine in which functions of all modes use the same shared variables of PyTensor alternately.

``python -m fuzzing.pytensor`` draws functions whose updates depend on each other. The command calls the functions in
every way, changes variables between calls, and compares all values with those of PyTensor's Python linker.
"""
