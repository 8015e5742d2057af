// The packet engine as Python sees it.
// Python half: src/weft/packets/packet_simulator.py.
#include <nanobind/typing.h>

#include "bindings/arrays.hpp"
#include "bindings/constructor.hpp"
#include "bindings/module.hpp"
#include "packets/packet_simulator.hpp"

namespace weft {
namespace {

// The columns of all tables. Keeps the arrays alive for as long as spans point into them.
struct TableColumns {
    In<int64_t> rank_steps, step_entries;
    In<int32_t> entry_needs;
    In<int64_t> entry_sends;
    In<int32_t> send_dst, send_from, send_to, send_path, send_paths, send_step;
    In<int64_t> send_bytes, send_aggregate_ps, wake_offsets;
    In<int32_t> wakes;

    TableView spans() const {
        return {view(rank_steps), view(step_entries),      view(entry_needs),  view(entry_sends), view(send_dst),
                view(send_from),  view(send_to),           view(send_path),    view(send_paths),  view(send_step),
                view(send_bytes), view(send_aggregate_ps), view(wake_offsets), view(wakes)};
    }
};

// The channels of a network and the paths over them, with the arrays that hold them.
struct ChannelColumns {
    In<int64_t> flit_ps, latency_ps, path_offsets;
    In<int32_t> path_channels;
    In<uint8_t> path_class;
    In<int32_t> inject, eject;
    int32_t virtual_channels, classes;
    int64_t buffer_flits, router_ps, credit_ps;

    PacketNetworkShape shape(bool hold) const {
        return {view(flit_ps),
                view(latency_ps),
                view(path_offsets),
                view(path_channels),
                view(path_class),
                virtual_channels,
                classes,
                buffer_flits,
                router_ps,
                credit_ps,
                hold};
    }
};

nb::typed<nb::dict, nb::str, nb::any> execute_tables_py(const TableColumns& tables, const ChannelColumns& channels,
                                                        const PacketForm& form, const ExecutionRules& rules,
                                                        int32_t pieces) {
    ExecutionOutcome outcome;
    {
        nb::gil_scoped_release release;
        // A message whose packets share one head keeps its virtual channels from its first packet to its last.
        outcome = execute_tables(tables.spans(), form, rules, channels.shape(form.head_per_message),
                                 view(channels.inject), view(channels.eject), pieces);
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

void bind_columns(nb::module_& m) {
    nb::class_<TableColumns>(m, "TableColumns", "The schedule tables of all ranks, in columns; see weft.packets.table.")
        .def("__init__",
             &Constructor<TableColumns, In<int64_t>, In<int64_t>, In<int32_t>, In<int64_t>, In<int32_t>, In<int32_t>,
                          In<int32_t>, In<int32_t>, In<int32_t>, In<int32_t>, In<int64_t>, In<int64_t>, In<int64_t>,
                          In<int32_t>>::init,
             nb::kw_only(), nb::arg("rank_steps"), nb::arg("step_entries"), nb::arg("entry_needs"),
             nb::arg("entry_sends"), nb::arg("send_dst"), nb::arg("send_from"), nb::arg("send_to"),
             nb::arg("send_path"), nb::arg("send_paths"), nb::arg("send_step"), nb::arg("send_bytes"),
             nb::arg("send_aggregate_ps"), nb::arg("wake_offsets"), nb::arg("wakes"));
    nb::class_<ChannelColumns>(m, "ChannelColumns",
                               "Channels, and the paths over them; see weft.packets.network_channels.")
        .def("__init__",
             &Constructor<ChannelColumns, In<int64_t>, In<int64_t>, In<int64_t>, In<int32_t>, In<uint8_t>, In<int32_t>,
                          In<int32_t>, int32_t, int32_t, int64_t, int64_t, int64_t>::init,
             nb::kw_only(), nb::arg("flit_ps"), nb::arg("latency_ps"), nb::arg("path_offsets"),
             nb::arg("path_channels"), nb::arg("path_class"), nb::arg("inject"), nb::arg("eject"),
             nb::arg("virtual_channels"), nb::arg("classes"), nb::arg("buffer_flits"), nb::arg("router_ps"),
             nb::arg("credit_ps"));
}

}  // namespace

void bind_packets(nb::module_& m) {
    bind_columns(m);
    nb::class_<PacketForm>(m, "PacketForm", "How a message is cut into packets and these into flits.")
        .def("__init__", &Constructor<PacketForm, int64_t, int64_t, int64_t, bool, bool>::init, nb::kw_only(),
             nb::arg("flit_bytes"), nb::arg("payload_bytes"), nb::arg("head_flits"), nb::arg("head_per_message"),
             nb::arg("padded"));
    nb::class_<ExecutionRules>(m, "ExecutionRules", "What network interfaces do, and the limits of a run.")
        .def("__init__",
             &Constructor<ExecutionRules, int32_t, int64_t, int64_t, int64_t, int64_t, int64_t, int64_t, bool, bool,
                          int64_t, int64_t, double>::init,
             nb::kw_only(), nb::arg("ports"), nb::arg("cycle_ps"), nb::arg("queue_packets"), nb::arg("queue_flits"),
             nb::arg("send_cycles"), nb::arg("receive_cycles"), nb::arg("nop_ps"), nb::arg("strict"),
             nb::arg("prioritised"), nb::arg("max_time_ps"), nb::arg("max_events"), nb::arg("max_work"));
    m.def("execute_tables", &execute_tables_py, nb::arg("tables"), nb::arg("channels"), nb::arg("form"),
          nb::arg("rules"), nb::arg("pieces"), "Execute schedule tables; see weft.packets.");
}

}  // namespace weft
