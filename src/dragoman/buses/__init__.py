"""Message buses between servers: adapters of `ports` for NATS and PostgreSQL. No rules of the domain."""
