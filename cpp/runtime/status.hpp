// How an operation ended.
// Python half: src/weft/runtime/engines/native_engine.py.
#pragma once

#include <cstdint>

namespace weft::runtime {

// `given_up`: the others no longer wait for this rank, by which `rank` gave up first. `cut`, `corrupt`: the connection
// between `rank` and `waited_for` carries nothing any more, or changes what it carries; both live.
enum class Status : uint8_t { done, lost, frozen, left, differs, timed_out, interrupted, given_up, cut, corrupt };

}  // namespace weft::runtime
