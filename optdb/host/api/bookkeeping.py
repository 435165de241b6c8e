"""What the host keeps about a graph while it changes: its order, its nodes by op, and how variables are reconnected."""

from optdb.host.theano.speedups.bookkeeping import kept_order, nodes_by_op, order_by_data, reconnect

__all__ = ["kept_order", "nodes_by_op", "order_by_data", "reconnect"]
