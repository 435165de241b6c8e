"""What the host records about a changing graph: its order, its nodes by op, and how to reconnect variables."""

from optdb.host.theano.speedups.bookkeeping import kept_order, nodes_by_op, order_by_data, reconnect

__all__ = ["kept_order", "nodes_by_op", "order_by_data", "reconnect"]
