"""A state machine: functions of all modes use the same shared variables of PyTensor alternately.

``python -m fuzzing.pytensor`` draws functions whose updates read each other, calls them in every way, changes variables
in between, and compares values with those of PyTensor's Python linker.
"""
