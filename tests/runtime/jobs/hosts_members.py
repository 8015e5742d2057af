"""Only ranks of other hosts are reached over the network.

Run by tests/runtime/test_hosts.py.
"""

import weft

with weft.init(timeout=30) as comm:
    comm.barrier()
    transport = comm._engine._transport
    print(sorted(transport.sockets), sorted(transport.watched))
