// The module weft._runtime, which is for Linux: the data plane as Python sees it. src/weft/runtime has checked the types.
// Python half: src/weft/runtime/engines/native_engine.py and src/weft/runtime/transport/connect.py.
#include <nanobind/stl/optional.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>

#include "bindings/arrays.hpp"
#include "bindings/module.hpp"
#include "bindings/table.hpp"
#include "runtime/crc32c.hpp"
#include "runtime/executor.hpp"
#include "runtime/heartbeats.hpp"
#include "runtime/script.hpp"
#include "runtime/shared_memory.hpp"

namespace weft {
namespace {

using namespace runtime;

std::shared_ptr<Script> write_script_py(const Table& table, int32_t ranks, int32_t slots, In<int64_t> start, bool pairs,
                                        bool elsewhere, In<int64_t> output_start, int64_t segment, int32_t rank,
                                        int64_t max_segments, In<int32_t> connections, In<int32_t> out, In<int32_t> in,
                                        In<int32_t> of_route, bool needs_all) {
    std::vector<int64_t> sizes(start.shape(0) - 1);
    for (size_t i = 0; i < sizes.size(); ++i) sizes[i] = start.data()[i + 1] - start.data()[i];
    nb::gil_scoped_release release;
    Layout layout{view(start), ranks, pairs, elsewhere, view(output_start)};
    auto script =
        std::make_shared<Script>(write_script(table.rows(), {sizes, segment, ranks, slots, max_segments}, layout,
                                              {view(connections), view(out), view(in), view(of_route)}, rank));
    script->needs_all = needs_all;
    return script;
}

using PeerExchangeTuple = std::tuple<int32_t, int64_t, int64_t, int64_t, int64_t, uint64_t>;

std::shared_ptr<Script> write_exchange_py(const std::vector<PeerExchangeTuple>& exchanges, int64_t segment,
                                          In<int32_t> connections) {
    if (segment < 1) throw std::invalid_argument("segment");
    std::vector<PeerExchange> all;
    for (const auto& [peer, sends, receives, here, there, code] : exchanges) {
        if (here < 0 || there < 0) throw std::invalid_argument("a place before the first element");
        constexpr int64_t kMost = int64_t{1} << 58;  // so that no end of a range of elements or bytes overflows
        if (std::max({sends, receives, here, there}) > kMost) throw std::invalid_argument("a place beyond all memory");
        all.push_back({peer, sends, receives, here, there, code});
    }
    return std::make_shared<Script>(write_exchange(all, segment, view(connections)));
}

void bind_host(nb::module_& m) {
    nb::class_<Host>(m, "Host", "This rank's part of the memory that the ranks of one machine share.")
        .def(nb::init<int, int, size_t, bool, bool>(), nb::arg("rank"), nb::arg("ranks"), nb::arg("arena_bytes"),
             nb::arg("crowded"), nb::arg("readable"))
        .def_prop_ro("descriptor", &Host::descriptor)
        .def_prop_ro("arena_bytes", &Host::arena_bytes)
        .def_prop_ro("arena_address",
                     [](const Host& host) { return reinterpret_cast<uint64_t>(host.arena(host.rank())); })
        .def("attach", &Host::attach, nb::arg("rank"), nb::arg("pid"), nb::arg("descriptor"), nb::arg("arena_bytes"),
             "Map another rank's memory.")
        .def("can_read", &Host::can_read, nb::arg("rank"), nb::arg("address"), nb::arg("expected"),
             "Whether the kernel lets this process read another rank's memory.")
        .def("start_watch", &Host::start_watch, nb::arg("suspect_after_ms"), nb::arg("frozen_after_ms"),
             nb::arg("rank_of"), nb::arg("job_ranks"), "Begin to send heartbeats, and to watch those of the others.")
        .def(
            "losses",
            [](const Host& host) {
                std::vector<std::tuple<int32_t, bool>> found;
                for (int32_t rank = 0; rank < host.job_ranks(); ++rank) {
                    Host::Loss loss = host.loss(rank);
                    if (loss.when_ms != 0) found.emplace_back(rank, loss.frozen);
                }
                return found;
            },
            "Ranks of the job that were declared lost, each with whether it is only frozen.")
        .def("reset", &Host::reset, nb::arg("channel"), "Make a channel as new.")
        .def_prop_ro(
            "cut",
            [](const Host& host) -> std::optional<std::tuple<int32_t, int32_t, int32_t>> {
                Host::Cut cut = host.cut();
                if (!cut.seen()) return std::nullopt;
                return std::tuple(cut.lower, cut.higher, cut.connection);
            },
            "Ranks of the job at both ends of a connection that was cut, and which of theirs it is.")
        .def("mend", &Host::mend, "Forget the cut.")
        .def(
            "news",
            [](const Host& host, int32_t teller,
               int channel) -> std::optional<std::tuple<uint64_t, int32_t, uint32_t>> {
                Host::RankReport report = host.report(teller, channel);
                if (report.teller < 0) return std::nullopt;
                return std::tuple(report.communicator, report.other, report.status);
            },
            nb::arg("teller"), nb::arg("channel"),
            "What a rank said last about its communicator on a channel: which, whom it waits for or blames, and why.")
        .def("close", &Host::close, nb::call_guard<nb::gil_scoped_release>(), "Leave on purpose.");
    nb::class_<Heartbeats>(m, "Heartbeats", "Beats between this rank and rank 0, over sockets that stay the caller's.")
        .def(nb::init<std::shared_ptr<Host>, const std::vector<int32_t>&, int64_t, int64_t>(), nb::arg("host"),
             nb::arg("sockets"), nb::arg("suspect_after_ms"), nb::arg("silent_after_ms"))
        .def("close", &Heartbeats::close, nb::call_guard<nb::gil_scoped_release>(), "Leave on purpose.");
}

void bind_scripts(nb::module_& m) {
    nb::class_<Script>(m, "Script", "What one rank does in one collective.")
        .def_prop_ro("tasks", [](const Script& script) { return script.tasks.size(); })
        .def(
            "rows_sent",
            [](const Script& script, int32_t peer) {
                std::vector<int32_t> rows;
                for (const Script::Queue& queue : script.sends) {
                    if (queue.peer != peer) continue;
                    for (int32_t task : queue.turns) rows.push_back(script.tasks[task].row);
                }
                return rows;
            },
            nb::arg("peer"),
            "The row of each segment for a peer, in the order in which a socket sends those that are ready.")
        .def_ro("scratch_elements", &Script::scratch_elements)
        .def_ro("stage_elements", &Script::stage_elements);
    m.def("write_script", &write_script_py, nb::kw_only(), nb::arg("table"), nb::arg("ranks"), nb::arg("slots"),
          nb::arg("start"), nb::arg("pairs"), nb::arg("elsewhere"), nb::arg("output_start"), nb::arg("segment"),
          nb::arg("rank"), nb::arg("max_segments"), nb::arg("connections"), nb::arg("out"), nb::arg("in_"),
          nb::arg("of_route"), nb::arg("needs_all"),
          "The part of a schedule that concerns one rank; sizes in elements.");
    m.def("write_exchange", &write_exchange_py, nb::arg("exchanges"), nb::arg("segment"), nb::arg("connections"),
          "Elements to and from single peers: (peer, sends, receives, here, there, code), -1 where nothing goes that "
          "way.");
    m.attr("CHANNELS") = kChannels;
    m.def(
        "crc32c",
        [](nb::bytes data, uint32_t crc, bool portable) {
            return (portable ? crc32c_portable : crc32c)(crc, data.c_str(), data.size());
        },
        nb::arg("data"), nb::arg("crc") = 0, nb::arg("portable") = false, "Checksum of bytes, continued from `crc`.");
}

void bind_results(nb::module_& m) {
    nb::enum_<Status>(m, "Status", "How an operation ended.")
        .value("done", Status::done)
        .value("lost", Status::lost)
        .value("frozen", Status::frozen)
        .value("left", Status::left)
        .value("differs", Status::differs)
        .value("timed_out", Status::timed_out)
        .value("interrupted", Status::interrupted)
        .value("given_up", Status::given_up)
        .value("cut", Status::cut)
        .value("corrupt", Status::corrupt);
    nb::class_<Waiting>(m, "Waiting", "What an operation waits for.")
        .def_ro("rank", &Waiting::rank)
        .def_ro("row", &Waiting::row)
        .def_ro("seconds", &Waiting::seconds)
        .def_ro("silent_ms", &Waiting::silent_ms);
    nb::class_<OperationResult>(m, "OperationResult", "How an operation ended, and through whom.")
        .def_ro("status", &OperationResult::status)
        .def_ro("rank", &OperationResult::rank)
        .def_ro("row", &OperationResult::row)
        .def_ro("waited_for", &OperationResult::waited_for);
}

}  // namespace

}  // namespace weft

NB_MODULE(_runtime, m) {
    using namespace weft;
    m.doc() = "Weft's runtime on Linux: memory that ranks share, links between them, and what they run over these.";
    // First, because Table and TooMany are bound there.
    nb::module_::import_("weft._core");
    m.def("version", [] { return nb::str(WEFT_VERSION); }, "Return the version this extension was built as.");
    bind_kernels(m);
    bind_host(m);
    bind_scripts(m);
    bind_results(m);
    bind_operations(m);
}
