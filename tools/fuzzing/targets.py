"""All fuzz targets: everything in Weft that reads bytes somebody else wrote.

A target makes an input from a random generator and reads it. An input is bytes and holds everything that is
needed to read it again with the same result. Where both sides speak in turn, the input is the seed of
what the hostile side says.
"""

from __future__ import annotations

import functools
from typing import Final

from fuzzing.control_plane import make_record, make_seed, read_control_frames, read_handshake, read_record
from fuzzing.data_plane import make_heartbeats, make_traffic, read_heartbeats, read_traffic
from fuzzing.record_files import make_flight, make_table, read_flight, read_table
from fuzzing.schedule_files import make_binary, make_json, make_plan_file, read_plan, read_schedule
from fuzzing.target import Target
from fuzzing.topology_files import (
    make_merged,
    make_spec,
    make_topology,
    read_box_file,
    read_merged,
    read_spec,
    read_topology_file,
)

TARGETS: Final = {
    "schedule": Target(make_binary, read_schedule),
    "schedule-json": Target(make_json, read_schedule),
    "plan": Target(make_plan_file, read_plan),
    "toml": Target(functools.partial(make_topology, "*.toml"), read_topology_file),
    "nccl-xml": Target(functools.partial(make_topology, "*.nccl.xml"), read_topology_file),
    "nccl-graph": Target(functools.partial(make_topology, "*.ncclgraph.xml"), read_topology_file),
    "nvidia-smi": Target(functools.partial(make_topology, "*.nvidia-smi.txt"), read_topology_file),
    "slurm-conf": Target(functools.partial(make_topology, "*.slurm.conf"), read_topology_file),
    "slurm-yaml": Target(functools.partial(make_topology, "*.slurm.yaml"), read_topology_file),
    "ibnetdiscover": Target(functools.partial(make_topology, "*.ibnetdiscover.txt"), read_topology_file),
    "box": Target(functools.partial(make_topology, "*.xml"), read_box_file),
    "merged": Target(make_merged, read_merged),
    "spec": Target(make_spec, read_spec),
    "ni-table": Target(make_table, read_table),
    "flight": Target(make_flight, read_flight),
    "control-frames": Target(make_seed, read_control_frames),
    "records": Target(make_record, read_record),
    "handshake": Target(make_seed, read_handshake),
    "heartbeats": Target(make_heartbeats, read_heartbeats),
    "data-frames": Target(make_traffic, read_traffic),
}
