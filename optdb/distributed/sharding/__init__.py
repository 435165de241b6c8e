"""Finds out how a graph computes if each worker has a part of the batch.

Flow: ``layouts`` are the ways in which workers can hold a value: the same on each, a part of its rows, a summand.
``rules`` say for each op what layout its results have, given those of its inputs. ``spreading`` walks over a graph by
these rules and makes the graph of one worker; where an op needs a value whole, and each worker has a summand, it adds
an ``AllReduce`` (``collective``). ``cutting`` divides the result into functions: one that computes summands, and one
that computes next values from sums.
"""
