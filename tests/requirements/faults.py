"""What the server does when something breaks: the cases 41 to 52 of what it is tried with, one entry for each promise.

The cases before, of bad input and of strangers, stand in `tests/abuse/cases.py`. The long forms are the commands
`python -m tests.crash`, `python -m tests.simulation` and `python -m tests.cluster`.
"""

from tests.requirements import Requirement

SOURCE = "faults, case {}"


def _case(number: int, slug: str, text: str) -> Requirement:
    return Requirement(f"faults:{number}:{slug}", text, SOURCE.format(number))


REQUIREMENTS = (
    # --- processes that die or stand still ----------------------------------------------------------------------------
    _case(41, "every-step", "`kill -9` at every step of a commit, of a start and of a stop loses nothing acknowledged"),
    _case(41, "every-commit", "A death between any two commits leaves a session that goes on or ends visibly"),
    _case(
        41, "migration", "A death inside a migration leaves the schema before or after a step; the next start goes on"
    ),
    _case(41, "postgres", "The same over PostgreSQL, whose server may die too"),
    _case(41, "several", "Of several servers one that dies is taken over within its lease and 5 s"),
    _case(41, "approvals", "An approval runs a tool once: repeated after a crash, on any protocol, it runs nothing"),
    _case(
        41, "repeats", "Who is asked whether a call runs again learns, on any protocol, that it may have run already"
    ),
    _case(42, "zombie", "A server that stood still for longer than its lease writes nothing, and calls no tool later"),
    _case(42, "begins-anew", "It gives up the runs that it had, and serves on under another name"),
    # --- disks --------------------------------------------------------------------------------------------------------
    _case(43, "full", "A full disk refuses new work, loses nothing, and is no matter once there is room"),
    _case(43, "io-error", "An I/O error at any statement refuses the commit whole"),
    _case(43, "fsync", "After a sync that failed nothing is acknowledged by the same handle"),
    _case(
        43,
        "read-only",
        "With a read-only disk, new work is refused with 503, reading works, and the reason is reported",
    ),
    _case(43, "damaged", "A server whose database is damaged is not ready, with the reason"),
    _case(43, "altered", "Data that the disk altered is an error of its session, and never shown"),
    _case(43, "wal-damaged", "A damaged write-ahead log loses no acknowledged commits silently"),
    _case(43, "check", "A command checks the whole database and names what is damaged"),
    _case(43, "quarantine", "A damaged session goes into quarantine: what is whole is exported, and it can be deleted"),
    _case(43, "backup", "A backup of a running server is of one moment, and a restored server continues"),
    _case(43, "backup-damaged", "A damaged backup is refused, and a restore that fails changes nothing"),
    _case(43, "deleted", "When the data folder is removed no work is taken, and the log says how to save everything"),
    _case(43, "locked", "A database that another program locks is waited for, and refused for as long as it lasts"),
    _case(43, "log-deleted", "A write-ahead log that is deleted under the server takes nothing acknowledged with it"),
    # --- PostgreSQL and NATS ------------------------------------------------------------------------------------------
    _case(44, "restart", "PostgreSQL restarts again and again: no turn is lost, doubled or given up"),
    _case(44, "cut", "Connections that break at any statement leave a commit whole"),
    _case(44, "away", "A longer outage of the database is answered with 503, and work continues when it is back"),
    _case(44, "silence", "A network that takes everything and gives nothing back is borne"),
    _case(44, "frozen", "A database that stopped answering is answered with 503, and nothing refused appears later"),
    _case(44, "unknown", "A commit whose answer is missing is reported as neither stored nor refused"),
    _case(44, "exhausted", "A database without a free connection is waited for"),
    _case(44, "long-lock", "A lock that somebody else holds is waited for"),
    _case(45, "away", "Without NATS runs go on, and other servers' words are at most 1.5 s late"),
    _case(45, "stalled", "A NATS that stalls makes nobody wait"),
    _case(45, "back", "Hints go on by themselves when NATS is back"),
    # --- clocks -------------------------------------------------------------------------------------------------------
    _case(46, "jump", "The clock on the wall may jump by an hour: order and leases do not depend on it"),
    _case(46, "apart", "Servers whose clocks are minutes apart show one history"),
    _case(46, "daylight", "Where clocks are put forward or back each time is due as the table says"),
    # --- stopping and starting ----------------------------------------------------------------------------------------
    _case(47, "drains", "A server that is stopped takes no work, gives its runs a grace period and parks the rest"),
    _case(47, "rolling", "Servers that are restarted one after the other under load give up no turn"),
    _case(48, "refused", "A second server on a data folder refuses to start and says what to do"),
    _case(49, "newer", "A database of a newer release is refused and left as it is"),
    _case(49, "older", "A database of every earlier schema is brought up to date with all that it holds"),
    _case(49, "half", "A migration that broke off is finished by the next start"),
    _case(49, "foreign", "What is none of ours is refused and left as it is"),
    # --- too little of something --------------------------------------------------------------------------------------
    _case(
        50, "descriptors", "Without free descriptors who comes is turned away, what is open goes on, all is well after"
    ),
    _case(50, "memory", "A request that is too large for the memory left fails alone"),
    _case(50, "processor", "Code that blocks the processor is reported, and costs the server no lease"),
    # --- schedules ----------------------------------------------------------------------------------------------------
    _case(51, "missed", "A time missed by less than five minutes is kept, a longer one is noted"),
    _case(51, "once", "Of several servers one keeps a time, and once"),
    _case(51, "overlap", "While a fire is under way the next one is skipped"),
    _case(51, "refused", "A zone that there is not and a day that never comes are refused"),
    _case(51, "year", "A year with 100 restarts misses nothing and doubles nothing"),
    # --- long sessions ------------------------------------------------------------------------------------------------
    _case(52, "memory", "A session of 100,000 events is opened, paged and resumed in bounded memory"),
    _case(52, "deleted", "Nothing of a session is left anywhere after it was deleted"),
)
