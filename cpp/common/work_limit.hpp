// A bound on the work of long loops, which also notice Ctrl-C.
#pragma once

#include <cstddef>
#include <limits>
#include <stdexcept>

namespace weft {

// More of something than the caller allows; `what()` says of what.
struct TooMany : std::runtime_error {
    using std::runtime_error::runtime_error;
};

// Throws when the program was interrupted. It is defined in bindings/interrupt.cpp, because only the bindings see Python.
void check_interrupt();

// Counts work in units of about a nanosecond. Throws when it exceeds its bound, or when the program was interrupted.
class WorkLimit {
public:
    explicit WorkLimit(double most = std::numeric_limits<double>::infinity()) : most_(most) {}

    void spend(size_t work) {
        spent_ += work;
        if (spent_ < kCheckEvery) return;
        all_ += static_cast<double>(spent_);
        spent_ = 0;
        if (all_ > most_) throw TooMany("operations");
        check_interrupt();
    }

private:
    static constexpr size_t kCheckEvery = size_t{1} << 24;
    size_t spent_ = 0;
    double all_ = 0, most_;
};

}  // namespace weft
