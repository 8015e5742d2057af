// The packet engine as Python sees it.
// Python half: src/weft/packets/execution.py.
#include <nanobind/typing.h>

#include "bindings/arrays.hpp"
#include "bindings/module.hpp"
#include "packets/execution.hpp"

namespace weft {
namespace {

nb::typed<nb::dict, nb::str, nb::any> execute_tables_py(
    In<int64_t> rank_steps, In<int64_t> step_entries, In<int32_t> entry_needs, In<int64_t> entry_sends,
    In<int32_t> send_dst, In<int32_t> send_from, In<int32_t> send_to, In<int32_t> send_path, In<int32_t> send_paths, In<int32_t> send_step,
    In<int64_t> send_bytes, In<int64_t> send_aggregate_ps, In<int64_t> wake_offsets, In<int32_t> wakes,
    In<int64_t> path_offsets, In<int32_t> path_channels, In<uint8_t> path_class, In<int64_t> flit_ps,
    In<int64_t> latency_ps, In<int32_t> inject, In<int32_t> eject, int32_t ports, int32_t virtual_channels,
    int32_t classes, int64_t buffer_flits, int64_t router_ps, int64_t credit_ps, int64_t flit_bytes,
    int64_t payload_bytes, int64_t head_flits, bool whole_messages, bool padded, int64_t cycle_ps,
    int64_t queue_packets, int64_t queue_flits, int64_t send_cycles, int64_t receive_cycles, int64_t nop_ps,
    bool strict, bool prioritised, int32_t pieces, int64_t max_time_ps, int64_t max_events, double max_work) {
    TableView table{view(rank_steps), view(step_entries), view(entry_needs), view(entry_sends), view(send_dst),
                    view(send_from), view(send_to), view(send_path), view(send_paths), view(send_step), view(send_bytes),
                    view(send_aggregate_ps), view(wake_offsets), view(wakes)};
    PacketNetworkShape shape{view(flit_ps), view(latency_ps), view(path_offsets), view(path_channels), view(path_class),
                      virtual_channels, classes, buffer_flits, router_ps, credit_ps, whole_messages};
    PacketForm form{flit_bytes, payload_bytes, head_flits, whole_messages, padded};
    ExecutionRules rules{ports, cycle_ps, queue_packets, queue_flits, send_cycles, receive_cycles, nop_ps,
                         strict, prioritised, max_time_ps, max_events, max_work};
    ExecutionOutcome outcome;
    {
        nb::gil_scoped_release release;
        outcome = execute_tables(table, form, rules, shape, view(inject), view(eject), pieces);
    }
    nb::dict result;
    result["time_ps"] = outcome.time_ps;
    result["quiet_ps"] = outcome.quiet_ps;
    result["events"] = outcome.events;
    result["units"] = outcome.units;
    result["packets"] = outcome.packets;
    result["flits"] = outcome.flits;
    result["most_flits"] = outcome.most_flits;
    result["stuck_send"] = outcome.stuck_send;
    result["stuck_channel"] = outcome.stuck_channel;
    result["stuck_entry"] = outcome.stuck_entry;
    result["channel_busy_ps"] = to_numpy(std::move(outcome.channel_busy_ps));
    result["rank_finish_ps"] = to_numpy(std::move(outcome.rank_finish_ps));
    result["send_start_ps"] = to_numpy(std::move(outcome.send_start_ps));
    result["send_arrived_ps"] = to_numpy(std::move(outcome.send_arrived_ps));
    return result;
}

}  // namespace

void bind_packets(nb::module_& m) {
    m.def("execute_tables", &execute_tables_py, nb::arg("rank_steps"), nb::arg("step_entries"),
          nb::arg("entry_needs"), nb::arg("entry_sends"), nb::arg("send_dst"), nb::arg("send_from"),
          nb::arg("send_to"), nb::arg("send_path"), nb::arg("send_paths"), nb::arg("send_step"), nb::arg("send_bytes"),
          nb::arg("send_aggregate_ps"), nb::arg("wake_offsets"), nb::arg("wakes"), nb::arg("path_offsets"),
          nb::arg("path_channels"), nb::arg("path_class"), nb::arg("flit_ps"), nb::arg("latency_ps"),
          nb::arg("inject"), nb::arg("eject"), nb::arg("ports"), nb::arg("virtual_channels"), nb::arg("classes"),
          nb::arg("buffer_flits"), nb::arg("router_ps"), nb::arg("credit_ps"), nb::arg("flit_bytes"),
          nb::arg("payload_bytes"), nb::arg("head_flits"), nb::arg("whole_messages"), nb::arg("padded"),
          nb::arg("cycle_ps"), nb::arg("queue_packets"), nb::arg("queue_flits"), nb::arg("send_cycles"),
          nb::arg("receive_cycles"), nb::arg("nop_ps"), nb::arg("strict"), nb::arg("prioritised"), nb::arg("pieces"),
          nb::arg("max_time_ps"), nb::arg("max_events"), nb::arg("max_work"), "Execute schedule tables; see weft.packets.");
}

}  // namespace weft
