"""Agent2Agent: agents as other agents call them. Only the protocol's own terms; the rest is in `protocols.kit`."""
