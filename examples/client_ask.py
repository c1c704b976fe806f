"""Ask, and wait for the whole answer: no event loop, no events. The second run finds the session again by its id.

python examples/client_ask.py http://127.0.0.1:8000 KEY "Hello!"
python examples/client_ask.py http://127.0.0.1:8000 KEY "And now?" SESSION
"""

import sys

from dragoman.client import Client, RunFailed, Unreachable


def main(url: str, key: str, text: str, session_id: str = "") -> None:
    with Client(url, key=key) as client:
        session = client.open(session_id) if session_id else client.create()
        try:
            print(session.ask(text).text)
        except RunFailed as error:
            sys.exit(f"{error} (code {error.code})")
        except Unreachable as error:
            sys.exit(f"{error}; trying again may help: {error.may_retry}")
        print(f"{session.id}: {len(session.history())} messages so far", file=sys.stderr)


if __name__ == "__main__":
    main(*sys.argv[1:])
