"""PyTensor's shared variables, used by functions of all modes in turn, as a state machine.

``python -m fuzzing.pytensor`` draws functions whose updates read each other, calls them in every way, changes variables
in between, and compares values with those of PyTensor's Python linker.
"""
