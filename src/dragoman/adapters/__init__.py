"""Agents of other frameworks, served unchanged: a wrapper per framework, which runs the framework's own loop."""

from dragoman.adapters.run_info import RunInfo

__all__ = ["RunInfo"]
