// Python half: src/weft/runtime/transport/connect.py.
#include "runtime/link.hpp"

#include <algorithm>

#include "runtime/copy_bytes.hpp"

namespace weft::runtime {

std::optional<uint32_t> Link::arriving(Sink* /*guess*/) { return std::nullopt; }

Sink::Extent Sink::next() const {
    const Part& part = script_.parts[part_];
    auto bytes = static_cast<int64_t>(memory_.element);
    std::byte* here = stage_ != nullptr
                          ? stage_ + done_ * bytes
                          : memory_.region[static_cast<int>(part.here_in)] + (part.here + within_) * bytes;
    const std::byte* base = memory_.region[static_cast<int>(part.base_in)] + (part.base + within_) * bytes;
    return {here, base, part.there_in, part.there + within_, part.elements - within_};
}

void Sink::take(const std::byte* data, int64_t elements) {
    while (elements > 0) {
        Extent extent = next();
        int64_t some = std::min(elements, extent.elements);
        auto bytes = static_cast<size_t>(some) * memory_.element;
        if (copies()) {
            copy_bytes(extent.here, data, bytes);
        } else {
            reduce_to(memory_.dtype, memory_.op, extent.here, extent.base, data, static_cast<size_t>(some));
        }
        data += bytes;
        elements -= some;
        skip(some);
    }
}

void Sink::skip(int64_t elements) {
    done_ += elements;
    within_ += elements;
    if (within_ == script_.parts[part_].elements) {
        ++part_;
        within_ = 0;
    }
}

}  // namespace weft::runtime
