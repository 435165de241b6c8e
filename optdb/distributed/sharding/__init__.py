"""Derives what one worker computes of a graph if each worker has a part of the batch.

Flow: ``layouts`` are the ways in which workers can hold a value: the same on each worker, a part of its rows, or a
summand. ``rules`` derive for each op the layouts of its results from those of its inputs. ``spreading`` applies the
rules to a graph and builds the graph of one worker; if an op needs a whole value and each worker has a summand, it
inserts an ``AllReduce`` (``collective``). ``cutting`` divides the result into functions: one that computes summands,
and one that computes next values from sums.
"""
