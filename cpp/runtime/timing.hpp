// The clock of the runtime.
#pragma once

#include <chrono>
#include <cstdint>

namespace weft::runtime {

using Clock = std::chrono::steady_clock;

inline int64_t to_ms(Clock::time_point when) {
    using namespace std::chrono;
    return duration_cast<milliseconds>(when.time_since_epoch()).count();
}

inline int64_t now_ms() { return to_ms(Clock::now()); }

}  // namespace weft::runtime
