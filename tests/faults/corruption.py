"""A campaign of damage: flips bits in a data folder, starts on it, and compares everything that can be read.

    .venv/bin/python -m tests.faults.corruption --trials 1000

Each trial flips 1 to 8 bits in the database, in the write-ahead log of a folder that was not closed, or in the files of
attachments. What is read then has to be as it was before, or missing with an error; a start may fail with a sentence.
"""

import argparse
import asyncio
import shutil
import sys
import tempfile
from base64 import b64encode
from collections import Counter
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from random import Random
from typing import Any, Literal

import msgspec

from dragoman.core.content import Image
from dragoman.core.ids import SessionId
from dragoman.core.inputs import UserInput
from dragoman.core.refusals import StoreUnavailable
from dragoman.engine.services.attachments import ATTACHMENT_THRESHOLD_CHARS, Attachments
from dragoman.server.stores import open_stores_at
from dragoman.stores.errors import WrongVersion
from tests.server.test_copy_between_stores import filled

Target = Literal["database", "write-ahead log", "attachment"]
TARGETS: tuple[Target, ...] = ("database", "write-ahead log", "attachment")
SESSIONS = 6
MAX_FLIPS = 8
ATTACHING = SessionId("00000000-0000-7000-8000-000000000000")
Contents = dict[str, Any]
Attached = Sequence[UserInput]


class Report(msgspec.Struct):
    """What became of the trials of a campaign."""

    outcomes: Counter[str]
    flips: int = 0
    altered: list[str] = []
    """Trials in which something was read that had never been written."""
    unclear: list[str] = []
    """Starts that failed without a clear message."""

    def __str__(self) -> str:
        lines = [f"{count:6} {outcome}" for outcome, count in sorted(self.outcomes.items())]
        return "\n".join([*lines, f"{self.flips} bits flipped", *self.altered, *self.unclear])


def picture(number: int) -> UserInput:
    """A message with a picture that is stored as an attachment."""
    content = b64encode(Random(number).randbytes(ATTACHMENT_THRESHOLD_CHARS)).decode()
    return UserInput(content=(Image(f"data:image/png;base64,{content}"),))


async def contents_of(folder: Path, attached: Attached) -> Contents:
    """Everything that can be read, by name. What is missing or damaged is left out."""
    contents: Contents = {}
    with closing(open_stores_at(str(folder))) as stores:
        last = None
        while page := await _or_nothing(stores.archive.sessions(last, 10)):
            for session in page:
                last = session.session_id
                if (snapshot := await _or_nothing(stores.log.load(last))) is not None:
                    contents[f"state {last}"] = snapshot.head
                    contents |= {f"piece {last} {each.after}.{each.place}": each for each in snapshot.pieces}
                for event in await _or_nothing(stores.log.events(last, 0, 1000)) or ():
                    contents[f"event {last} {event.seq}"] = event
                for key, value in (await _or_nothing(stores.log.kept(last, "", None, 100)) or {}).items():
                    contents[f"kept {last} {key}"] = value
        for number, message in enumerate(await Attachments(stores.blobs).restore(ATTACHING, attached)):
            if message.content[0] != Image(""):
                contents[f"picture {number}"] = message.content
    return contents


async def _or_nothing(reading: Any) -> Any:  # what is read
    try:
        return await reading
    except StoreUnavailable:
        return None


async def prepare(folder: Path) -> tuple[Contents, Attached, dict[Target, Path]]:
    """Fill a folder. Returns its contents, and a folder for each target: at rest, and as a crash leaves it."""
    closed, crashed = folder / "closed", folder / "crashed"
    with closing(open_stores_at(str(closed))) as stores:
        await filled(stores, SESSIONS)
        attached = await Attachments(stores.blobs).put(ATTACHING, [picture(number) for number in range(20)])
        crashed.mkdir()
        for name in ("dragoman.db", "dragoman.db-wal"):
            shutil.copyfile(closed / name, crashed / name)
        shutil.copytree(closed / "blobs", crashed / "blobs")
    contents = await contents_of(closed, attached)
    return contents, attached, {"database": closed, "write-ahead log": crashed, "attachment": closed}


async def play(trial: int, target: Target, source: Path, before: Contents, attached: Attached, report: Report) -> None:
    """Flip bits in a copy of a folder, and read it."""
    chance = Random(trial)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "data"
        shutil.copytree(source, folder)
        files = {
            "database": [folder / "dragoman.db"],
            "write-ahead log": [folder / "dragoman.db-wal"],
            "attachment": sorted(path for path in (folder / "blobs").rglob("*") if path.is_file()),
        }[target]
        file = chance.choice([path for path in files if path.stat().st_size])
        content = bytearray(file.read_bytes())
        flips = chance.randint(1, MAX_FLIPS)
        for _ in range(flips):
            content[chance.randrange(len(content))] ^= 1 << chance.randrange(8)
        file.write_bytes(content)
        report.flips += flips
        try:
            after = await contents_of(folder, attached)
        except (StoreUnavailable, WrongVersion) as error:
            report.outcomes[f"{target}: the start is refused, with the reason"] += 1
            if len(str(error)) < 20:
                report.unclear.append(f"trial {trial}: {error}")
            return
        except Exception as error:  # noqa: BLE001  # this is what the campaign looks for
            report.unclear.append(f"trial {trial}, {target}: {error!r}")
            return
    altered = [name for name, value in after.items() if before.get(name) != value]
    if altered:
        report.altered.append(f"trial {trial}, {target}: {altered[:3]}")
    complete = "everything is read as it was" if after == before else "what was altered is missing, with an error"
    report.outcomes[f"{target}: {complete}"] += 1


async def campaign(trials: int, first: int = 0) -> Report:
    """Play trials, over all targets in turn."""
    report = Report(outcomes=Counter())
    with tempfile.TemporaryDirectory() as name:
        before, attached, folders = await prepare(Path(name))
        for trial in range(first, first + trials):
            target = TARGETS[trial % len(TARGETS)]
            await play(trial, target, folders[target], before, attached, report)
    return report


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=1000)
    parser.add_argument("--first", type=int, default=0, help="number of the first trial, which is its seed")
    given = parser.parse_args()
    found = asyncio.run(campaign(given.trials, given.first))
    sys.stdout.write(f"{found}\n")
    raise SystemExit(bool(found.altered or found.unclear))
