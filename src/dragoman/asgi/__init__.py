"""HTTP in front of all protocols: connections, security headers, routing, health, metrics, the console's files."""
