"""What the imports of Theano's modules are redirected to.

Each module here stands for one of Python's, NumPy's or SciPy's, is called like it, and gives everything that the
original has; what the original has lost, or means otherwise by now, is defined here. `translation.REDIRECTED` says
which module of Theano's imports goes where. Nothing but Theano imports them.
"""
