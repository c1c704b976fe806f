"""Metrics and tracing of the engine, and wrappers that measure stores and models."""
