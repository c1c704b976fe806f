"""Events and answers that do not fit into the memory are errors of their own, and do not end the process."""

import subprocess
import sys

import pytest

from tests.requirements import requirement

LIMITED = """
import resource, sys

from dragoman.core import events
from dragoman.core.content import UserMessage
from dragoman.protocols.kit.body import json_response
from dragoman.protocols.kit.frames import encode_json

escaped, plain = "\\1" * 10_000_000, "a" * 10_000_000
message = events.MessageAdded(message=UserMessage(id="m-1", content=escaped))
_, payload = events.encode_plain(events.MessageAdded(message=UserMessage(id="m-1", content=plain)))
work = {
    "encode": lambda: events.encode_plain(message),
    "answer": lambda: json_response({"text": escaped}),
    "frame": lambda: encode_json({"delta": escaped}),
    "text of a frame": lambda: encode_json(escaped),
    "decode": lambda: events.decode(payload),
}[sys.argv[1]]
with open("/proc/self/statm") as file:
    size = int(file.read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (size + 6_000_000, resource.RLIM_INFINITY))
try:
    work()
except MemoryError:
    print("refused")
resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
work()
print("and done with more memory")
"""


@requirement("faults:50:memory")
@pytest.mark.skipif(sys.platform != "linux", reason="only Linux limits the address space")
@pytest.mark.parametrize("work", ["encode", "answer", "frame", "text of a frame", "decode"])
def test_what_does_not_fit_into_the_memory_is_refused_and_the_process_continues(work: str) -> None:
    done = subprocess.run([sys.executable, "-c", LIMITED, work], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "refused\nand done with more memory\n"), done.stderr
