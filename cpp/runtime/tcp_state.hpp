// What the kernel knows about a connection.
// Python half: src/weft/runtime/transport/connect.py.
#pragma once

#include <cstdint>

namespace weft::runtime {

// Whether data waits to be acknowledged, or to be sent although the peer has room for it, and nothing was heard for so
// long. A peer that is only slow answers: its kernel does.
bool is_stuck(int socket, uint32_t milliseconds);

}  // namespace weft::runtime
