"""Only ranks of other hosts are reached over the network.

Run by tests/runtime/test_hosts.py.
"""

from typing import Any

import weft

with weft.init(timeout=30) as comm:
    comm.barrier()
    engine: Any = comm._engine
    transport = engine._transport
    print(sorted(transport.sockets), sorted(transport.watched))
