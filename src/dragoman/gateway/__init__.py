"""Remote agents: agents that run on other servers, served here. Based on `client`, with the contract of `adapters`."""
