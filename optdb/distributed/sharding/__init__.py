"""Derives the part of a graph that one worker computes if each worker has a part of the batch.

``layouts`` describe how workers hold a value: the whole value on each worker, a part of its rows, or a summand. For
each op, ``rules`` derive the layouts of its results from the layouts of its inputs. ``spreading`` applies the rules to
a graph and builds one worker's graph; where an op needs the whole value but each worker only has a summand, it inserts
an ``AllReduce`` (``collective``). ``cutting`` divides the worker's graph into functions, such as one that computes
summands and one that computes next values from sums.
"""
