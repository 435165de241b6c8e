"""Facts about rewriters, known in advance, that avoid futile attempts; a host may have no such facts."""

from optdb.host.theano.rewriters.facts import Facts, facts_of, in_order_of_precedence
from optdb.host.theano.speedups.passes import has_scan, is_scan_pass
