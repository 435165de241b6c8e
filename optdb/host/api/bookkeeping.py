"""The host's records about a changing graph (its order, and its nodes by op), and the reconnection of variables."""

from optdb.host.theano.speedups.bookkeeping import kept_order, nodes_by_op, order_by_data, reconnect
