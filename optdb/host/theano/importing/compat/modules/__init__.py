"""The targets of redirected imports of Theano's modules.

Each module here replaces one of Python's, NumPy's or SciPy's, has the same name, and provides all names of the
original; names that the original has lost, or whose meaning has changed, are defined here. `translation.REDIRECTED`
maps the modules that Theano imports to these. A package with few names is a single module, which also serves as the
package's submodules. Only Theano imports these modules.
"""
