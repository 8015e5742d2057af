// The simulator as Python sees it.
// Python half: src/weft/simulation/simulator.py and src/weft/schedule/paths.py.
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/typing.h>

#include <stdexcept>
#include <tuple>

#include "bindings/arrays.hpp"
#include "bindings/module.hpp"
#include "bindings/table.hpp"
#include "simulation/simulator.hpp"

namespace weft {
namespace {

std::tuple<Out<int32_t>, Out<int32_t>> default_pairs_py(const Table& table, int32_t ranks) {
    std::vector<int64_t> pairs;
    {
        nb::gil_scoped_release release;
        pairs = default_pairs(table.rows(), ranks);
    }
    std::vector<int32_t> src(pairs.size()), dst(pairs.size());
    for (size_t i = 0; i < pairs.size(); ++i) {
        src[i] = static_cast<int32_t>(pairs[i] / ranks);
        dst[i] = static_cast<int32_t>(pairs[i] % ranks);
    }
    return {to_numpy(std::move(src)), to_numpy(std::move(dst))};
}

std::vector<int64_t> join_pairs(const In<int32_t>& src, const In<int32_t>& dst, int32_t ranks) {
    std::vector<int64_t> pairs(src.shape(0));
    for (size_t i = 0; i < pairs.size(); ++i) {
        pairs[i] = static_cast<int64_t>(src.data()[i]) * ranks + dst.data()[i];
    }
    return pairs;
}

std::tuple<double, double, double> measure_load_py(const Table& table, int32_t ranks, In<int64_t> chunk_bytes,
                                                   int64_t segment_bytes, In<int32_t> pair_src, In<int32_t> pair_dst,
                                                   int32_t explicit_routes, In<int64_t> path_offsets,
                                                   In<int32_t> path_links) {
    Network network{{}, {}, view(path_offsets), view(path_links)};
    Rows rows = table.rows();
    nb::gil_scoped_release release;
    std::vector<int64_t> pairs = join_pairs(pair_src, pair_dst, ranks);
    Load load = measure_load(rows, {view(chunk_bytes), segment_bytes, ranks, 1, 0}, network,
                             {rows, ranks, network, pairs, explicit_routes});
    return {load.pieces, load.segments, load.crossings};
}

template <typename Choice>
Choice choose(const std::string& text, std::initializer_list<std::pair<const char*, Choice>> choices) {
    for (auto& [name, choice] : choices) {
        if (text == name) return choice;
    }
    throw std::invalid_argument("unknown choice: " + text);
}

// The critical path in columns, first to last.
template <typename RowOf, typename IndexOf>
void path_to_numpy(nb::dict& result, const std::vector<PathStep>& path, RowOf row_of, IndexOf index_of) {
    std::vector<int32_t> row, index;
    std::vector<uint8_t> waited;
    std::vector<int64_t> start_ps, end_ps;
    for (auto step = path.rbegin(); step != path.rend(); ++step) {
        row.push_back(row_of(step->segment));
        index.push_back(index_of(step->segment));
        waited.push_back(static_cast<uint8_t>(step->waited));
        start_ps.push_back(step->start_ps);
        end_ps.push_back(step->end_ps);
    }
    result["path_row"] = to_numpy(std::move(row));
    result["path_segment"] = to_numpy(std::move(index));
    result["path_waited"] = to_numpy(std::move(waited));
    result["path_start_ps"] = to_numpy(std::move(start_ps));
    result["path_end_ps"] = to_numpy(std::move(end_ps));
}

nb::typed<nb::dict, nb::str, nb::any> simulate_py(const Table& table, int32_t ranks, int32_t slots,
                                                  In<int64_t> chunk_bytes, int64_t segment_bytes, In<int32_t> pair_src,
                                                  In<int32_t> pair_dst, int32_t explicit_routes,
                                                  In<int64_t> path_offsets, In<int32_t> path_links,
                                                  In<int64_t> bandwidth, In<int64_t> latency_ps,
                                                  const std::string& sharing, bool record, int64_t max_segments,
                                                  int64_t max_time_ps, double max_work) {
    Settings settings{
        choose<Sharing>(sharing, {{"queue", Sharing::queue}, {"fluid", Sharing::fluid}}),
        record,
        max_time_ps,
        max_work,
    };
    Network network{view(bandwidth), view(latency_ps), view(path_offsets), view(path_links)};
    Rows rows = table.rows();
    Program program;
    Outcome outcome;
    {
        nb::gil_scoped_release release;
        program = lower(rows, {view(chunk_bytes), segment_bytes, ranks, slots, max_segments});
        std::vector<int64_t> pairs = join_pairs(pair_src, pair_dst, ranks);
        find_paths(program, {rows, ranks, network, pairs, explicit_routes});
        outcome = run(program, rows, ranks, network, settings);
    }

    auto row_of = [&](int32_t segment) { return program.segments[segment].row; };
    auto index_of = [&](int32_t segment) { return static_cast<int32_t>(program.index_of(segment)); };
    nb::dict result;
    result["time_ps"] = outcome.time_ps;
    result["segments"] = program.segments.size();
    result["events"] = outcome.events;
    result["stuck_row"] = outcome.stuck == kNone ? kNone : row_of(outcome.stuck);
    result["link_busy_ps"] = to_numpy(std::move(outcome.link_busy_ps));
    result["rank_finish_ps"] = to_numpy(std::move(outcome.rank_finish_ps));
    path_to_numpy(result, outcome.critical_path, row_of, index_of);
    if (record) {
        std::vector<int32_t> row, index;
        std::vector<int64_t> bytes;
        for (int32_t segment : outcome.timeline.segment) {
            row.push_back(row_of(segment));
            index.push_back(index_of(segment));
            bytes.push_back(program.segments[segment].bytes);
        }
        result["timeline_row"] = to_numpy(std::move(row));
        result["timeline_segment"] = to_numpy(std::move(index));
        result["timeline_bytes"] = to_numpy(std::move(bytes));
        result["timeline_link"] = to_numpy(std::move(outcome.timeline.link));
        result["timeline_start_ps"] = to_numpy(std::move(outcome.timeline.start_ps));
        result["timeline_end_ps"] = to_numpy(std::move(outcome.timeline.end_ps));
    }
    return result;
}

}  // namespace

void bind_simulation(nb::module_& m) {
    m.def("default_pairs", &default_pairs_py, nb::arg("table"), nb::arg("ranks"),
          "Sources and destinations that take the network's own path, each pair once.");
    m.def("measure_load", &measure_load_py, nb::kw_only(), nb::arg("table"), nb::arg("ranks"), nb::arg("chunk_bytes"),
          nb::arg("segment_bytes"), nb::arg("pair_src"), nb::arg("pair_dst"), nb::arg("explicit_routes"),
          nb::arg("path_offsets"), nb::arg("path_links"),
          "How many pieces, segments and crossings of links a simulation has, about.");
    m.def("simulate", &simulate_py, nb::kw_only(), nb::arg("table"), nb::arg("ranks"), nb::arg("slots"),
          nb::arg("chunk_bytes"), nb::arg("segment_bytes"), nb::arg("pair_src"), nb::arg("pair_dst"),
          nb::arg("explicit_routes"), nb::arg("path_offsets"), nb::arg("path_links"), nb::arg("bandwidth"),
          nb::arg("latency_ps"), nb::arg("sharing"), nb::arg("record"), nb::arg("max_segments"), nb::arg("max_time_ps"),
          nb::arg("max_work"), "Lower a schedule and run it; see weft.simulation.");
}

}  // namespace weft
