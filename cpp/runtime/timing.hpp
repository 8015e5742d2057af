// The clock of the runtime, and the interval of its heartbeats.
#pragma once

#include <chrono>
#include <cstdint>

namespace weft::runtime {

using Clock = std::chrono::steady_clock;

// Between two heartbeats of a rank, in shared memory as well as on its connection to rank 0. Python decides after how
// long a silence a rank is suspected or declared lost (SUSPECT_AFTER_MS in src/weft/runtime/transport/connect.py).
constexpr int64_t kHeartbeatMs = 100;

inline int64_t now_ms() {
    using namespace std::chrono;
    return duration_cast<milliseconds>(Clock::now().time_since_epoch()).count();
}

}  // namespace weft::runtime
