// What keeps long loops polite: a bound that is told, and Ctrl-C that is heard.
#pragma once

#include <cstddef>
#include <limits>
#include <stdexcept>

namespace weft {

// More of something than the caller allows; `what()` says of what.
struct TooMany : std::runtime_error {
    using std::runtime_error::runtime_error;
};

// Throws when somebody wants the program to stop. It is defined in bindings/module.cpp, because only the bindings see Python.
void check_interrupt();

// Counts work, in units of about a nanosecond, and listens every now and then; throws when it is too much.
class Patience {
public:
    explicit Patience(double most = std::numeric_limits<double>::infinity()) : most_(most) {}

    void spend(size_t work) {
        spent_ += work;
        if (spent_ < kStretch) return;
        all_ += static_cast<double>(spent_);
        spent_ = 0;
        if (all_ > most_) throw TooMany("operations");
        check_interrupt();
    }

private:
    static constexpr size_t kStretch = size_t{1} << 24;
    size_t spent_ = 0;
    double all_ = 0, most_;
};

}  // namespace weft
