"""Where the Agent API is served. Pure."""

PUBLIC_PATHS = ("/", "/health", "/readiness", "/liveness")
"""What needs no key. The package has these at the root, wherever its runs begin."""


def stop_path(path: str) -> str:
    """Where runs are stopped: beside the path where they begin."""
    return f"{path.rpartition('/')[0]}/stop"


def all_paths(path: str) -> tuple[str, ...]:
    """All paths of the protocol, in Starlette's notation."""
    return (path, f"{path}/{{rest:path}}", stop_path(path), *PUBLIC_PATHS)
