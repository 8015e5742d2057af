// Network interfaces that execute schedule tables, each rank its own, and nothing but these.
//
// A table has steps; a step has entries, or none (a NOP); an entry waits for messages and then sends some. Who may
// send when is docs/packets.md.
//
// Python half: src/weft/packets/packet_simulator.py.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "common/work_limit.hpp"
#include "packets/packet_network.hpp"

namespace weft {

struct TableView {
    std::span<const int64_t> rank_steps;    // steps of each rank, in order
    std::span<const int64_t> step_entries;  // entries of each step
    std::span<const int32_t> entry_needs;   // messages that an entry waits for
    std::span<const int64_t> entry_sends;
    std::span<const int32_t> send_dst;
    std::span<const int32_t> send_from;     // port of the sender, or -1 for any that is free
    std::span<const int32_t> send_to;       // port of the receiver
    std::span<const int32_t> send_path;   // the first of
    std::span<const int32_t> send_paths;  // so many
    std::span<const int32_t> send_step;
    std::span<const int64_t> send_bytes;
    std::span<const int64_t> send_aggregate_ps;  // what adding it costs the receiver; 0 for a copy
    std::span<const int64_t> wake_offsets;       // entries of the receiver that wait for it, per send
    std::span<const int32_t> wakes;
};

struct PacketForm {
    int64_t flit_bytes, payload_bytes;
    int64_t head_flits;
    bool head_per_message;  // else per packet
    bool padded;            // every packet is as long as a full one
};

struct ExecutionRules {
    int32_t ports;
    int64_t cycle_ps;
    int64_t queue_packets;  // that fit between an interface and its injection port
    int64_t queue_flits;    // of the injection port itself
    int64_t send_cycles, receive_cycles;
    int64_t nop_ps;  // one idle step; 0 passes over it
    bool strict;     // a step begins when all ports are free
    bool prioritised;
    int64_t max_time_ps, max_events;
    double max_work;  // in the units of WorkLimit
};

struct ExecutionOutcome {
    int64_t time_ps = 0;   // the last message is there and added
    int64_t quiet_ps = 0;  // the last credit is back
    int64_t events = 0, units = 0, most_flits = 0, packets = 0, flits = 0;
    std::vector<int64_t> channel_busy_ps;
    std::vector<int64_t> send_start_ps, send_arrived_ps;
    std::vector<int64_t> rank_finish_ps;
    int32_t stuck_send = -1;     // sent and never there
    int32_t stuck_channel = -1;  // where it waits
    int32_t stuck_entry = -1;    // never sent
};

// `inject` and `eject` are channels, `ports` for each rank. Messages move in units of packets if `pieces` is 0, in so
// many at most if it is more, and flit by flit if it is less.
ExecutionOutcome execute_tables(const TableView& table, const PacketForm& form, const ExecutionRules& rules,
                                const PacketNetworkShape& shape, std::span<const int32_t> inject,
                                std::span<const int32_t> eject, int32_t pieces);

}  // namespace weft
