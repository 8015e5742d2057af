"""Network interfaces to the flit: schedule tables, hardware, and their execution packet by packet."""

from weft.packets.hardware import PRESETS, Hardware, find_hardware
from weft.packets.packet_simulator import CODESIGNED, PacketResult, Rules, simulate_tables
from weft.packets.table import Send, TableEntry, Tables, default_ports, make_tables
from weft.packets.table_file import tables_from_json, tables_to_json, tables_to_text

__all__ = [
    "CODESIGNED",
    "PRESETS",
    "Hardware",
    "PacketResult",
    "Rules",
    "Send",
    "TableEntry",
    "Tables",
    "default_ports",
    "find_hardware",
    "make_tables",
    "simulate_tables",
    "tables_from_json",
    "tables_to_json",
    "tables_to_text",
]
