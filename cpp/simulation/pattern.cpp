// Python half: src/weft/simulation/workflow.py.
#include <numeric>

#include "simulation/workflow.hpp"

namespace weft {

namespace {

// Lists by place: where each begins, and then all of them behind one another.
void sort_into(std::span<const int32_t> part, std::span<const int32_t> rank, int32_t parts, int32_t ranks,
               std::vector<int64_t>& start, std::vector<int32_t>& all) {
    start.assign(static_cast<size_t>(parts) * ranks + 1, 0);
    auto place = [&](size_t segment) { return static_cast<size_t>(part[segment]) * ranks + rank[segment]; };
    for (size_t segment = 0; segment < part.size(); ++segment) ++start[place(segment) + 1];
    std::partial_sum(start.begin(), start.end(), start.begin());
    std::vector<int64_t> next(start.begin(), start.end() - 1);
    all.resize(part.size());
    for (size_t segment = 0; segment < part.size(); ++segment) {
        all[next[place(segment)]++] = static_cast<int32_t>(segment);
    }
}

void add_endpoint(std::vector<Hop>& hops, std::span<const EndpointHop> endpoint, int32_t rank, bool reduces) {
    for (const EndpointHop& hop : endpoint) {
        int32_t numerator = reduces ? hop.reduce_numerator : hop.copy_numerator;
        if (numerator > 0) hops.push_back({hop.first + rank, numerator, hop.denominator});
    }
}

}  // namespace

Pattern make_pattern(const Rows& rows, const Cut& cut, const Network& network, std::span<const int64_t> pairs,
                     int32_t explicit_routes, std::span<const int32_t> part_of_step,
                     std::span<const EndpointHop> before, std::span<const EndpointHop> after) {
    Pattern pattern;
    pattern.program = lower(rows, cut);
    find_paths(pattern.program, {rows, cut.ranks, network, pairs, explicit_routes});
    for (int32_t part : part_of_step) pattern.parts = std::max(pattern.parts, part + 1);
    size_t count = pattern.program.segments.size();
    pattern.src.reserve(count), pattern.dst.reserve(count), pattern.part.reserve(count);
    pattern.hop_start.reserve(count + 1);
    pattern.hop_start.push_back(0);
    for (const Segment& segment : pattern.program.segments) {
        int32_t row = segment.row;
        pattern.src.push_back(rows.src[row]);
        pattern.dst.push_back(rows.dst[row]);
        pattern.part.push_back(part_of_step.empty() ? 0 : part_of_step[rows.step[row]]);
        if (segment.path != kNone) {
            bool reduces = rows.op[row] != 0;
            add_endpoint(pattern.hops, before, rows.src[row], reduces);
            for (int32_t link : network.path(segment.path)) pattern.hops.push_back({link, 1, 1});
            add_endpoint(pattern.hops, after, rows.dst[row], reduces);
        }
        pattern.hop_start.push_back(static_cast<int64_t>(pattern.hops.size()));
    }
    sort_into(pattern.part, pattern.src, pattern.parts, cut.ranks, pattern.sends_start, pattern.sends);
    sort_into(pattern.part, pattern.dst, pattern.parts, cut.ranks, pattern.receives_start, pattern.receives);
    return pattern;
}

}  // namespace weft
