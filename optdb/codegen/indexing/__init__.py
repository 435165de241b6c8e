"""Parts of arrays that an index names: taken, set and incremented.

:mod:`named_elements` is for indexes with arrays and masks, :mod:`index_layout` computes where their elements are.
:mod:`named_rows` is for rows that one vector names, :mod:`slices` for slices and single numbers.
"""
