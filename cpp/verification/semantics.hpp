// Does a schedule compute its collective? Replays the table symbolically; knows no algorithm.
// Python half: src/weft/verification/semantics.py.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "verification/transfers.hpp"

namespace weft::verification {

enum class Fault : uint8_t {
    hazard,     // two writes of one place in one step, not both reduces
    undefined,  // the result depends on a place that was never written
    wrong_sum,  // a contribution is missing, or counted more than once
};

struct Finding {
    Fault fault;
    int32_t chunk;
    int32_t rank;          // whose result is wrong, or where the hazard is
    int32_t slot = 0;      // of the hazard
    int64_t transfer = -1;  // hazard: the second write. undefined: where the undefined value came in.
                            // wrong_sum: the last write of the result. -1: there is none.
    int64_t other = -1;     // hazard: the first write. wrong_sum: what counted doubled[0] again.
    bool unheld_sender = false;     // undefined: the sender held nothing; else the place added to did not
    std::vector<int32_t> missing{};  // ranks
    std::vector<int32_t> doubled{};  // ranks
};

// Nothing if every target ends with each contribution exactly once; else the first chunk's first wrong rank.
// `block_bytes` bounds the memory for partial sums: contributors are replayed in blocks that fit it.
std::optional<Finding> check_semantics(const Transfers& table, size_t block_bytes);

}  // namespace weft::verification
