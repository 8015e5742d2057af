"""Emulated clusters: any topology as network namespaces with shaped links, with real bytes through them.

A *space* is a network namespace: a host with its ranks, or a switch. A *cable* joins two of them and is as
fast each way as the topology says. What would be inside a host is not emulated: its ranks share memory.
"""

from weft.lab.blueprint import Blueprint, draw
from weft.lab.expected_time import emulated, predict
from weft.lab.network import Network, build

__all__ = ["Blueprint", "Network", "build", "draw", "emulated", "predict"]
