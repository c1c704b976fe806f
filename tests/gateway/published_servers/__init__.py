"""Servers as their projects publish them, each a program: `python -m tests.gateway.published_servers.NAME EFFECTS`.

They print their addresses, write each payment to the file EFFECTS, and end with their input. They import only what
their projects need, because some run in environments of their own: see `tools.remote_servers`.
"""
