"""`python -m tests.cluster --fault kill --times 60 --every 3`: a long campaign, from the project's folder."""

import argparse
import asyncio
import json
import sys
import time

from tests.cluster.campaign import FAULTS, LEASE_S, MAX_DELTA_DELAY_S, play


def main() -> int:
    """Play, and print what was checked and measured; status 1 when a promise was broken."""
    parser = argparse.ArgumentParser(prog="python -m tests.cluster", description=__doc__)
    parser.add_argument("--fault", choices=FAULTS, default="kill", help="what is done to the servers")
    parser.add_argument("--times", type=int, default=20, help="how often")
    parser.add_argument("--every", type=float, default=3.0, help="seconds between two, at most")
    parser.add_argument("--least", type=float, help="seconds between two, at least; half of that, if not given")
    parser.add_argument("--away", type=float, default=30.0, help="seconds for which NATS or the network are away")
    parser.add_argument("--nats", action="store_true", help="with hints over NATS, whatever is done")
    parser.add_argument("--nodes", type=int, default=3)
    parser.add_argument("--clients", type=int, default=6)
    parser.add_argument("--lease", type=float, default=LEASE_S)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    began = time.monotonic()
    try:
        report = asyncio.run(
            play(
                [given.fault] * given.times,
                every_s=(given.every / 2 if given.least is None else given.least, given.every),
                count=given.nodes,
                clients=given.clients,
                lease_s=given.lease,
                outage_s=given.away,
                over_nats=given.nats,
                max_delay_s=MAX_DELTA_DELAY_S,
                seed=given.seed,
                report_progress=lambda line: print(line, file=sys.stderr, flush=True),  # noqa: T201  # a program's own progress
            )
        )
    except AssertionError as error:
        sys.stdout.write(f"broken: {error}\nseed {given.seed}, {time.monotonic() - began:.0f} s\n")
        return 1
    sys.stdout.write(f"{json.dumps(report)}\n{given.times} x {given.fault}, {time.monotonic() - began:.0f} s\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
