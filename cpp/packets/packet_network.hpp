// Packets through routers: channels that carry one flit after the other, virtual channels behind them, credits.
//
// A channel is an injection port, a link or an ejection port. What it carries is a *unit*: a packet, or as many of a
// message as move together where less detail is wanted. docs/packets.md has the rules.
//
// Python half: src/weft/packets/packet_simulator.py (channels are laid out by network_channels.py).
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <utility>
#include <vector>

#include "common/radix_queue.hpp"
#include "packets/ring_buffer.hpp"

namespace weft {

enum class PacketEventKind : uint8_t { arbitrate, port_free, issue, arrived, aggregated };

struct PacketEvent {
    int64_t time;
    int32_t id;  // a channel, a port, a rank or a message
    PacketEventKind kind;
};

using PacketEventQueue = RadixQueue<PacketEvent>;

struct PacketNetworkShape {
    std::span<const int64_t> flit_ps, latency_ps;  // per channel
    std::span<const int64_t> path_offsets;         // channels between injection and ejection, per path
    std::span<const int32_t> path_channels;
    std::span<const uint8_t> path_class;  // of virtual channels, per channel of a path
    int32_t virtual_channels;
    int32_t classes;
    int64_t buffer_flits;  // per virtual channel
    int64_t router_ps;     // from a head's arrival to its earliest start on the next channel
    int64_t credit_ps;     // of a credit's way back, beyond the channel's own latency
    bool hold;             // a message keeps its virtual channel from its first packet to its last
};

// A message on its way. Its ports are channels.
struct Message {
    int32_t path = 0, paths = 1;  // the first of so many that its packets take in turn
    int32_t inject = 0, eject = 0, priority = 0;
    int64_t packets = 1;
    int64_t flits = 1;       // of each packet
    int64_t first_more = 0;  // of the first packet, beyond that
    int64_t last_less = 0;   // that the last packet has less
    int64_t injected = 0, delivered = 0;
};

// Is told what happens to messages.
class MessageListener {
public:
    virtual ~MessageListener() = default;
    // The next `count` packets of a message start on its injection port, `packet_ps` apart.
    virtual void injected(int32_t message, int64_t count, int64_t now, int64_t packet_ps) = 0;
    // The message's last flit is out of its ejection port.
    virtual void delivered(int32_t message, int64_t when) = 0;
};

// What carries messages from port to port.
class MessageCarrier {
public:
    virtual ~MessageCarrier() = default;
    // The message joins the queue of its injection port; its first flit is there at `ready`.
    virtual void enter(int32_t message, int64_t ready, int64_t now) = 0;
    // Something may start, on the channel that the event names or anywhere.
    virtual void arbitrate(const PacketEvent& event) = 0;
    // The channel that this message waits for, or -1.
    virtual int32_t stuck_at(int32_t message) const = 0;

    int64_t quiet_ps() const { return quiet_; }
    int64_t units() const { return units_; }
    int64_t most_flits() const { return most_; }
    std::vector<int64_t>& busy_ps() { return busy_; }

protected:
    std::vector<int64_t> busy_;
    int64_t quiet_ = 0, units_ = 0, most_ = 0;
};

class PacketNetwork final : public MessageCarrier {
public:
    // Units are packets if `pieces` is 0; else messages are cut into so many units at most.
    PacketNetwork(const PacketNetworkShape& shape, std::vector<Message>& messages, int32_t pieces,
                  PacketEventQueue& queue, MessageListener& listener);

    void enter(int32_t message, int64_t ready, int64_t now) override;
    void arbitrate(const PacketEvent& event) override;
    int32_t stuck_at(int32_t message) const override;

private:
    static constexpr int64_t kNever = std::numeric_limits<int64_t>::max();
    static constexpr int32_t kNobody = -1;

    struct Unit {
        int32_t message;
        int32_t path;
        int32_t hop;      // of the channel that it takes next: 0 is the injection port
        int64_t packets;
        int64_t flits;
        int64_t ready;    // its head may start there
        int64_t tail;     // its last flit may
        bool is_last;
        int64_t began = 0;  // it started on the channel that it came by
    };
    struct Credit {
        int64_t time, flits;
    };
    // Units in a row that leave one after the other: a virtual channel behind a channel, or what waits at a port.
    struct Buffer {
        RingBuffer<Unit> units;
        RingBuffer<Credit> returning;
        int64_t room = 0;
        int32_t owner = kNobody;
    };
    struct Channel {
        int64_t free_at = 0;
        int64_t arbitrate_at = kNever;
        bool starved = false;  // a unit waits for a credit that is not on its way yet
        int32_t turn = 0;      // the virtual channel used last
        int64_t gives_until = 0;         // its virtual channels pass on units: when the last of them is through
        int64_t giving = 0;              // how long that one takes
        int32_t gave = kNobody;          // which of them it is from
        std::vector<int32_t> wanted_by;  // buffers whose first unit goes here next, longest wait first
        std::vector<int32_t> served;     // channels these belong to, in the order they had their last turn
        RingBuffer<std::pair<int32_t, int64_t>> entering;  // injection ports: messages, and when each is ready
    };

    void request_arbitration(int32_t channel, int64_t when);
    void want(int32_t buffer, int64_t now);
    int32_t next_channel(const Unit& unit) const;
    bool gets_out(const Unit& unit) const {
        return unit.hop > shape_.path_offsets[unit.path + 1] - shape_.path_offsets[unit.path];
    }
    int32_t pick(int32_t channel, const Unit& unit, int64_t now, int64_t& retry);
    int64_t room_at(Buffer& buffer, int64_t now);
    int64_t credits_for(int32_t channel, const Unit& unit) const;
    bool cut_unit(int32_t channel);
    void start(int32_t channel, size_t place, int32_t behind, int64_t now);
    void leave(int32_t buffer, const Unit& unit, int64_t now, int64_t end);
    int64_t passable(int32_t buffer, int64_t duration) const;
    size_t turn_of(const Channel& channel, int32_t input) const;
    int32_t input_of(int32_t buffer) const {
        return buffer < virtual_ ? buffer / shape_.virtual_channels : buffer - virtual_;
    }
    int32_t port_buffer(int32_t channel) const { return virtual_ + channel; }

    const PacketNetworkShape shape_;
    std::vector<Message>& messages_;
    const int64_t pieces_;
    PacketEventQueue& queue_;
    MessageListener& listener_;
    const int32_t virtual_;  // buffers from here on belong to ports
    std::vector<Channel> channels_;
    std::vector<Buffer> buffers_;
};

}  // namespace weft
