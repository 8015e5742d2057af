"""Network interfaces to the flit: schedule tables, hardware, and their execution packet by packet."""

from weft.interfaces.hardware import PRESETS, Hardware, find_hardware
from weft.interfaces.packets import CODESIGNED, PacketResult, Rules, simulate_tables
from weft.interfaces.table import Entry, Send, Tables, make_tables

__all__ = [
    "CODESIGNED",
    "PRESETS",
    "Entry",
    "Hardware",
    "PacketResult",
    "Rules",
    "Send",
    "Tables",
    "find_hardware",
    "make_tables",
    "simulate_tables",
]
