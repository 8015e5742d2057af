// The clock of the runtime.
#pragma once

#include <chrono>
#include <cstdint>

namespace weft::runtime {

using Clock = std::chrono::steady_clock;

inline int64_t now_ms() {
    using namespace std::chrono;
    return duration_cast<milliseconds>(Clock::now().time_since_epoch()).count();
}

}  // namespace weft::runtime
