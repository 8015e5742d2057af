// Flits through routers, cycle by cycle: what packet_network.hpp does packet by packet, with the allocators of routers.
//
// Every cycle each router deals virtual channels to heads and passages to flits, by iSLIP with one iteration each: an
// output grants to the next input in turn that asks, an input accepts the next output in turn that granted, and turns
// move on only where a grant was accepted. docs/packets.md has the rules.
//
// Python half: src/weft/packets/packet_simulator.py (channels are laid out by network_channels.py).
#pragma once

#include "common/work_limit.hpp"
#include "packets/packet_network.hpp"

namespace weft {

class FlitNetwork final : public MessageCarrier {
public:
    // All latencies and times of flits are whole cycles.
    FlitNetwork(const PacketNetworkShape& shape, std::vector<Message>& messages, int64_t cycle_ps,
                WorkLimit& work_limit, PacketEventQueue& queue, MessageListener& listener);

    void enter(int32_t message, int64_t ready, int64_t now) override;
    void arbitrate(const PacketEvent& event) override;
    int32_t stuck_at(int32_t message) const override;

private:
    static constexpr int64_t kNever = std::numeric_limits<int64_t>::max();
    static constexpr int32_t kNobody = -1;

    // Flits that keep together: a packet, or a whole message where that keeps its virtual channels.
    struct Worm {
        int32_t message, path;
        int32_t hop;  // of the channel that it takes next: 0 is the injection port
        int64_t flits;
        bool is_last;
        int64_t arrived = 0, sent = 0;  // flits, into and out of where it stands
        int64_t ready = 0;  // its head may start on the next channel
    };
    struct Flit {
        int64_t time;  // it is in the buffer, and may ask for its passage
        int32_t buffer;
        int32_t message, path, hop;  // of a head; a body goes where its head went
        int64_t flits;  // 0 for a body
        bool is_last;
    };
    struct Credit {
        int64_t time;
        int32_t buffer;
    };
    // A virtual channel behind a channel, at the entry of a router or at the end of the way.
    struct Buffer {
        RingBuffer<Worm> worms;
        int64_t room = 0;
        bool taken = false;  // by a worm that has not left the router before
        int32_t out = kNobody;  // virtual channel that the first worm was given
        size_t grant = 0;  // whose turn it is to be given this virtual channel
        size_t accept = 0;  // which virtual channel it takes next, where several are offered
        bool listed = false;  // among those that have something
    };
    struct Channel {
        int64_t free_at = 0;
        int32_t turn = 0;  // injection ports: the virtual channel used last
        int32_t next_input = 0;  // whose turn it is to be granted this output
        int32_t next_output = 0;  // which output is accepted next, where several are granted
        int32_t next_buffer = 0;  // which virtual channel asks first, where several want one output
        int32_t injecting = kNobody;  // injection ports: where the worm goes that is on its way
        Worm worm{};  // injection ports: that worm
        RingBuffer<Flit> under_way;
        RingBuffer<Credit> returning;
        RingBuffer<std::pair<int32_t, int64_t>> entering;  // injection ports: messages, and when each is ready
        bool moving = false, sending = false;  // among those with something under way; with something to inject
    };
    struct Request {
        int32_t output, input, buffer;
    };

    int32_t next_channel(const Worm& worm) const;
    bool gets_out(const Worm& worm) const {
        return worm.hop > shape_.path_offsets[worm.path + 1] - shape_.path_offsets[worm.path];
    }
    std::pair<int32_t, int32_t> choices(const Worm& worm) const;
    int64_t first_packet_flits(const Worm& worm) const;
    void tick_at(int64_t when);
    void receive(int64_t now);
    bool deal_virtual_channels(int64_t now);
    bool pass(int64_t now);
    bool inject(int64_t now);
    bool begin(int32_t channel, int64_t now);
    void send(int32_t channel, int32_t behind, Worm& worm, int64_t now);
    Request first_asking(std::vector<Request>::const_iterator begin, std::vector<Request>::const_iterator end);
    void move(const Request& request, int64_t now);
    void list(int32_t buffer);
    int64_t next_time(bool moved, int64_t now);

    const PacketNetworkShape shape_;
    std::vector<Message>& messages_;
    const int64_t cycle_, stage_;  // a flit's way from its arrival to its first request
    WorkLimit& work_limit_;
    PacketEventQueue& queue_;
    MessageListener& listener_;
    std::vector<Channel> channels_;
    std::vector<Buffer> buffers_;
    std::vector<int32_t> busy_buffers_, moving_, sending_;
    std::vector<std::pair<int32_t, int32_t>> offers_;  // virtual channel, and who asks for it
    std::vector<Request> requests_, granted_;
    int64_t tick_ = kNever;
};

}  // namespace weft
