"""Any schedule gives the oracle's bits, and ends, wherever the arrays lie.

Usage: interpreter_random.py TRANSPORT EXAMPLES. Every rank draws the same schedules.

Run by tests/runtime/test_interpreter.py.
"""

import sys

import numpy as np
from hypothesis import HealthCheck, Phase, assume, example, given, settings
from support.handmade import all_at_once_all_reduce
from support.memory_channel import interpret
from support.random_schedules import schedules

import weft
from weft.topology import load_topology

SMALL, LARGE = 52, 40_000  # elements: of the latter a rank reads another's private memory


class Fixed:
    def __init__(self, schedule, segment_bytes):
        self.schedule, self.segment_bytes = schedule, segment_bytes

    def choose(self, collective, size_bytes, root):
        return self.schedule, self.segment_bytes


comm = weft.init(transport=sys.argv[1], timeout=20)
TOPOLOGY = load_topology(f"fullmesh:{comm.size}")
EXAMPLES = int(sys.argv[2])
tried = []


@settings(
    derandomize=True,
    database=None,
    max_examples=EXAMPLES,
    deadline=None,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=HealthCheck,
)
@given(schedules(TOPOLOGY))
@example(all_at_once_all_reduce(TOPOLOGY))
def test(schedule):
    assume(schedule.slots == 1)  # in scratch, what was never written may be read
    for elements, segment_bytes, shared in ((SMALL, 64, False), (SMALL, 64, True), (LARGE, 1 << 16, False)):
        random = np.random.default_rng(elements)
        parts = [random.standard_normal(elements).astype("float32") for _ in range(comm.size)]
        mine = comm.empty(elements) if shared else np.empty(elements, np.float32)
        mine[:] = parts[comm.rank]
        comm.use(Fixed(schedule, segment_bytes))
        comm.all_reduce(mine)
        arrays = [part.copy() for part in parts]
        with np.errstate(all="ignore"):  # sums of sums may grow without bound
            interpret(schedule, arrays, arrays, "sum")
        assert mine.tobytes() == arrays[comm.rank].tobytes(), (comm.rank, schedule, elements, shared)
    tried.append(schedule)


test()
assert len(tried) >= EXAMPLES, len(tried)
print("same", len(tried))
