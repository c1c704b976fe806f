"""Blade's Socket.IO connection: subscriptions, incoming messages, outgoing events."""
