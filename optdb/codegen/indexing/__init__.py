"""Indexing: taking, setting and incrementing parts of arrays.

:mod:`named_elements` handles advanced indexes, with arrays and masks; :mod:`index_layout` computes the positions of
their elements. :mod:`named_rows` handles rows selected by one vector.
"""
