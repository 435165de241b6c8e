"""Tiered compilation: a function runs in Python while compilers build its C code.

Nodes whose modules exist run in C; other nodes run in Python until their modules are built.
"""
