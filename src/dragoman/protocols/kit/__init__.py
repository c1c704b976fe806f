"""What every protocol over HTTP shares: request loop, router, error table, event streams, bodies, OpenAPI.

Nothing here knows a protocol's words or imports a protocol.
"""
