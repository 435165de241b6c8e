"""The host's vocabulary: what a second host would have to give, and nothing else.

``topo``, ``cache`` and ``lifters`` are written against these modules alone.
"""
