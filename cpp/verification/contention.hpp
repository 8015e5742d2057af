// How many flows meet on a link in one step, and how much each link carries.
// Python half: src/weft/verification/contention.py.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace weft::verification {

// A flow is everything one connection sends in one step.
struct FlowTable {
    std::span<const int32_t> step;        // per row, rising
    std::span<const int32_t> chunk;       // per row
    std::span<const int32_t> connection;  // per row
    std::span<const double> weight;       // per chunk; a row of a weightless chunk is no flow
    std::span<const int64_t> offsets;     // of connections into links
    std::span<const int32_t> links;
    int32_t link_count;
};

struct SharedLink {
    int32_t step;
    int32_t link;
    int32_t flows;
};

struct Contention {
    std::vector<int32_t> link_flows;    // most flows at once, per link
    std::vector<double> link_weight;    // sum over all steps, per link
    std::vector<int32_t> step_flows;    // most flows on one link, per step
    std::vector<double> step_weight;    // most weight on one link, per step
    std::vector<SharedLink> worst;         // of more than one flow, most flows first, then by step and link
};

Contention count_flows(const FlowTable& table, size_t keep);

}  // namespace weft::verification
