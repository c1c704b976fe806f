"""The paths of the Agent API. Pure."""

PUBLIC_PATHS = ("/", "/health", "/readiness", "/liveness")
"""The paths that need no key. They stay at the root, as in the published package, whatever path is configured."""


def stop_path(path: str) -> str:
    """The path that stops runs. It is a sibling of the configured path."""
    return f"{path.rpartition('/')[0]}/stop"


def endpoints(path: str) -> dict[str, str]:
    """The paths by the names that `GET /` gives them. `path` is the configured one."""
    return {
        "process": path,
        "stop": stop_path(path),
        "task": f"{path}/task",
        "task_status": f"{path}/task/{{task_id}}",
        "response": f"{path}/responses/{{response_id}}",
        "response_events": f"{path}/responses/{{response_id}}/events",
        "session_events": f"{path}/sessions/{{session_id}}/events",
        "health": "/health",
        "readiness": "/readiness",
        "liveness": "/liveness",
    }


def all_paths(path: str) -> tuple[str, ...]:
    """Patterns for every path of the protocol, in Starlette's notation."""
    return (path, f"{path}/{{rest:path}}", stop_path(path), *PUBLIC_PATHS)
