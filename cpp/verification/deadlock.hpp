// Can a schedule get stuck when a connection holds only so many messages that were sent and not yet consumed?
// Python half: src/weft/verification/deadlock.py.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "verification/transfers.hpp"

namespace weft::verification {

// Number of the connection (src, dst, route) of each row, and the first row of each connection. Local moves
// count as connections too.
struct Connections {
    Bulk<int32_t> of_row;
    std::vector<int64_t> first_row;
};
Connections number_connections(std::span<const int32_t> src, std::span<const int32_t> dst,
                               std::span<const int32_t> route);

enum class Reason : uint8_t {
    sent,          // a message is consumed after it is sent
    order,         // messages of a connection are sent, and consumed, in order
    slot,          // the receive slot is still taken
    forward_slot,  // fused: the slot that the forwarded message will take is still taken
    data,          // the value to send is still to come
    readers,       // the place to write is still to be read
    writers,       // the place to write is still to be written by an earlier transfer
};

// One link of a circle: the event (send or consume of the message that starts at `row`) waits for the next one.
struct Wait {
    int64_t row;
    bool consume;
    Reason reason;
};

struct MessageTable {
    const Transfers& transfers;
    std::span<const int64_t> starts;  // first row of each message
    std::span<const int32_t> route;
    bool fused;
};

// A circle of events that wait for each other, or nothing if there is none with this many slots.
std::vector<Wait> find_deadlock(const MessageTable& messages, int64_t slots);

// The smallest number of slots with which no circle exists.
int64_t minimum_slots(const MessageTable& messages);

}  // namespace weft::verification
