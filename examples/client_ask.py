"""Ask a question and wait for the complete answer, without an event loop. The second command continues the session.

python examples/client_ask.py http://127.0.0.1:8000 KEY "Hello!"
python examples/client_ask.py http://127.0.0.1:8000 KEY "And now?" SESSION
"""

import sys

from dragoman.client import Client, ClientError, RunFailed


def main(url: str, key: str, text: str, session_id: str = "") -> None:
    with Client(url, key=key) as client:
        session = client.open(session_id) if session_id else client.create()
        print(session.ask(text).text)
        print(f"{session.id}: {len(session.history())} messages so far", file=sys.stderr)


if __name__ == "__main__":
    if len(sys.argv) < 4:
        sys.exit(__doc__)
    try:
        main(*sys.argv[1:])
    except RunFailed as error:
        sys.exit(f"{error} (code {error.code})")
    except ClientError as error:  # an invalid key, no connection, ...
        sys.exit(f"{error} (a retry may help: {error.may_retry})")
