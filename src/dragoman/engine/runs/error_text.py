"""An agent's exception as a sentence for the person who writes the agent."""

import traceback
from pathlib import Path

_PACKAGE = str(Path(__file__).parents[2])


def describe_error(error: BaseException) -> str:
    """The exception, and the line of the agent's own code that it passed last, such as `ValueError: x (app.py:7)`.

    The lines of this package and of installed ones are left out.
    """
    text = "".join(traceback.format_exception_only(error)).strip().splitlines()[-1]
    frames = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if not frame.filename.startswith((_PACKAGE, "<")) and "site-packages" not in Path(frame.filename).parts
    ]
    return f"{text} ({Path(frames[-1].filename).name}:{frames[-1].lineno})" if frames else text
