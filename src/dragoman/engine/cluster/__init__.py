"""Several servers on one store: ownership, leases, commands to other servers, live deltas from them."""
