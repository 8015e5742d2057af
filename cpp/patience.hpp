// What keeps long loops polite: a bound that is told, and Ctrl-C that is heard.
#pragma once

#include <cstdint>
#include <stdexcept>

namespace weft {

// More of something than the caller allows; `what()` says of what.
struct TooMany : std::runtime_error {
    using std::runtime_error::runtime_error;
};

// Throws when somebody wants the program to stop. Only bindings.cpp, which knows Python, can tell.
void check_interrupt();

// Counts work, in units of some nanoseconds, and listens every now and then.
class Patience {
public:
    void spend(size_t work) {
        spent_ += work;
        if (spent_ < kStretch) return;
        spent_ = 0;
        check_interrupt();
    }

private:
    static constexpr size_t kStretch = size_t{1} << 24;
    size_t spent_ = 0;
};

}  // namespace weft
