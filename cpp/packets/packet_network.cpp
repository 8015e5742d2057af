// Python half: src/weft/packets/packet_simulator.py (channels are laid out by network_channels.py).
#include "packets/packet_network.hpp"

#include <algorithm>

namespace weft {

PacketNetwork::PacketNetwork(const PacketNetworkShape& shape, std::vector<Message>& messages, int32_t pieces,
                             PacketEventQueue& queue, MessageListener& listener)
    : shape_(shape),
      messages_(messages),
      pieces_(pieces),
      queue_(queue),
      listener_(listener),
      virtual_(static_cast<int32_t>(shape.flit_ps.size()) * shape.virtual_channels),
      channels_(shape.flit_ps.size()),
      buffers_(virtual_ + shape.flit_ps.size()) {
    busy_.assign(shape.flit_ps.size(), 0);
    for (int32_t i = 0; i < virtual_; ++i) buffers_[i].room = shape.buffer_flits;
}

int32_t PacketNetwork::next_channel(const Unit& unit) const {
    if (unit.hop == 0) return messages_[unit.message].inject;
    if (gets_out(unit)) return messages_[unit.message].eject;
    return shape_.path_channels[shape_.path_offsets[unit.path] + unit.hop - 1];
}

void PacketNetwork::request_arbitration(int32_t channel, int64_t when) {
    Channel& there = channels_[channel];
    if (when >= there.arbitrate_at) return;
    there.arbitrate_at = when;
    queue_.push({when, channel, PacketEventKind::arbitrate});
}

// The buffer has a new first unit.
void PacketNetwork::want(int32_t buffer, int64_t now) {
    const Unit& unit = buffers_[buffer].units.front();
    int32_t channel = next_channel(unit);
    channels_[channel].wanted_by.push_back(buffer);
    request_arbitration(channel, std::max({now, unit.ready, channels_[channel].free_at}));
}

void PacketNetwork::enter(int32_t message, int64_t ready, int64_t now) {
    int32_t channel = messages_[message].inject;
    channels_[channel].entering.push({message, ready});
    if (buffers_[port_buffer(channel)].units.empty() && cut_unit(channel)) want(port_buffer(channel), now);
}

// Puts the next packets of the first message at a port into its buffer; false if there is none.
bool PacketNetwork::cut_unit(int32_t channel) {
    Channel& port = channels_[channel];
    if (port.entering.empty()) return false;
    auto [number, ready] = port.entering.front();
    Message& message = messages_[number];
    int64_t left = message.packets - message.injected;
    int64_t packets = pieces_ == 0 ? 1 : std::min(left, (message.packets + pieces_ - 1) / pieces_);
    int64_t flits = packets * message.flits;
    if (message.injected == 0) flits += message.first_more;
    bool is_last = packets == left;
    if (is_last) flits -= message.last_less;
    // A message that keeps its virtual channels keeps its path as well.
    int64_t turn = shape_.hold ? number : message.injected / packets;
    auto path = static_cast<int32_t>(message.path + turn % message.paths);
    buffers_[port_buffer(channel)].units.push({number, path, 0, packets, flits, ready, ready, is_last});
    return true;
}

int64_t PacketNetwork::room_at(Buffer& buffer, int64_t now) {
    while (!buffer.returning.empty() && buffer.returning.front().time <= now) {
        buffer.room += buffer.returning.front().flits;
        buffer.returning.pop();
    }
    return buffer.room;
}

// How long credits of one virtual channel take to let all packets of a unit pass: only so many are under way in the time
// of a round trip. Packets that move one by one wait for them by themselves.
int64_t PacketNetwork::credits_for(int32_t channel, const Unit& unit) const {
    if (pieces_ == 0) return 0;
    int64_t packet = messages_[unit.message].flits;
    int64_t under_way = (shape_.buffer_flits + packet - 1) / packet * packet;
    int64_t round_trip = 2 * shape_.latency_ps[channel] + shape_.router_ps + shape_.credit_ps;
    auto wide = static_cast<__int128>(unit.flits) * round_trip / under_way;
    return static_cast<int64_t>(std::min<__int128>(wide, int64_t{1} << 61));
}

// A virtual channel behind `channel` for this unit, or -1 and when to ask again if that is known.
int32_t PacketNetwork::pick(int32_t channel, const Unit& unit, int64_t now, int64_t& retry) {
    int32_t first = 0, count = shape_.virtual_channels;
    if (unit.hop > 0 && shape_.classes > 1) {
        int32_t number = shape_.path_class[shape_.path_offsets[unit.path] + unit.hop - 1];
        count /= shape_.classes;
        first = number * count;
    }
    Buffer* behind = &buffers_[channel * shape_.virtual_channels];
    Channel& there = channels_[channel];
    auto try_one = [&](int32_t number) {
        Buffer& buffer = behind[number];
        if (room_at(buffer, now) > 0) return true;
        if (buffer.returning.empty()) {
            there.starved = true;
        } else {
            retry = std::min(retry, buffer.returning.front().time);
        }
        return false;
    };
    if (shape_.hold) {
        for (int32_t i = first; i < first + count; ++i) {
            if (behind[i].owner == unit.message) return try_one(i) ? i : -1;
        }
    }
    for (int32_t i = 0; i < count; ++i) {
        int32_t number = first + (there.turn + 1 + i) % count;
        if (shape_.hold && behind[number].owner != kNobody) continue;
        if (try_one(number)) return number;
    }
    return -1;
}

// When the first unit of a buffer may pass its router. All virtual channels of a channel share one way through it, on
// which flits of two units interleave: the second may begin as soon as the first is under way, but a virtual channel
// that had its turn waits for both while another one wants to go.
int64_t PacketNetwork::passable(int32_t buffer, int64_t duration) const {
    if (buffer >= virtual_) return 0;
    int32_t input = buffer / shape_.virtual_channels;
    const Channel& channel = channels_[input];
    int64_t first = channel.gives_until - std::max(duration, channel.giving);
    if (channel.gave != buffer) return first;
    for (int32_t i = 0; i < shape_.virtual_channels; ++i) {
        int32_t other = input * shape_.virtual_channels + i;
        if (other != buffer && !buffers_[other].units.empty()) return channel.gives_until;
    }
    return first;
}

// Inputs that never had a turn come first, then whose last one is longest ago.
size_t PacketNetwork::turn_of(const Channel& channel, int32_t input) const {
    auto seat = std::find(channel.served.begin(), channel.served.end(), input);
    return seat == channel.served.end() ? 0 : static_cast<size_t>(seat - channel.served.begin()) + 1;
}

void PacketNetwork::arbitrate(const PacketEvent& event) {
    Channel& channel = channels_[event.id];
    if (channel.arbitrate_at != event.time) return;
    channel.arbitrate_at = kNever;
    int64_t now = event.time;
    if (channel.free_at > now) {
        request_arbitration(event.id, channel.free_at);
        return;
    }
    channel.starved = false;
    int64_t retry = kNever;
    int32_t best_priority = 0, best_behind = -1;
    size_t best = channel.wanted_by.size(), best_turn = 0;
    for (size_t i = 0; i < channel.wanted_by.size(); ++i) {
        int32_t buffer = channel.wanted_by[i];
        const Unit& unit = buffers_[buffer].units.front();
        int64_t ready = std::max(unit.ready, passable(buffer, unit.flits * shape_.flit_ps[event.id]));
        if (ready > now) {
            retry = std::min(retry, ready);
            continue;
        }
        int32_t priority = messages_[unit.message].priority;
        size_t turn = turn_of(channel, input_of(buffer));
        if (best < channel.wanted_by.size() && std::pair(priority, turn) >= std::pair(best_priority, best_turn))
            continue;
        int32_t behind = gets_out(unit) ? 0 : pick(event.id, unit, now, retry);
        if (behind < 0) continue;
        best = i;
        best_priority = priority;
        best_turn = turn;
        best_behind = behind;
    }
    if (best < channel.wanted_by.size()) {
        start(event.id, best, best_behind, now);
        if (!channel.wanted_by.empty()) request_arbitration(event.id, channel.free_at);
    } else if (retry != kNever) {
        request_arbitration(event.id, retry);
    }
}

void PacketNetwork::start(int32_t number, size_t place, int32_t behind, int64_t now) {
    Channel& channel = channels_[number];
    int32_t from = channel.wanted_by[place];
    channel.wanted_by.erase(channel.wanted_by.begin() + static_cast<ptrdiff_t>(place));
    Unit unit = buffers_[from].units.front();
    Message& message = messages_[unit.message];
    int64_t flit = shape_.flit_ps[number], latency = shape_.latency_ps[number];
    int64_t end = std::max(now + unit.flits * flit, unit.tail + flit);
    channel.free_at = end;
    int32_t input = input_of(from);
    if (unit.hop > 0) {
        Channel& giver = channels_[input];
        giver.giving = unit.flits * flit;
        giver.gives_until = std::max(giver.gives_until, now) + giver.giving;
        giver.gave = from;
    }
    auto seat = std::find(channel.served.begin(), channel.served.end(), input);
    if (seat != channel.served.end()) channel.served.erase(seat);
    channel.served.push_back(input);
    busy_[number] += unit.flits * flit;
    ++units_;
    if (unit.hop == 0) {
        listener_.injected(unit.message, unit.packets, now, message.flits * flit);
        message.injected += unit.packets;
        if (unit.is_last) channel.entering.pop();
    }
    leave(from, unit, now, end);

    if (gets_out(unit)) {
        // What the interface took gives its credit back too.
        quiet_ = std::max(quiet_, end - flit + 2 * latency);
        message.delivered += unit.packets;
        if (message.delivered == message.packets) listener_.delivered(unit.message, end - flit + latency);
        return;
    }
    channel.turn = behind;
    int32_t buffer = number * shape_.virtual_channels + behind;
    Buffer& next = buffers_[buffer];
    next.room -= unit.flits;
    // A unit takes room for all its flits when it starts. Those beyond the room wait for credits where it comes from.
    most_ = std::max(most_, shape_.buffer_flits - std::max<int64_t>(next.room, 0));
    if (shape_.hold) next.owner = unit.is_last ? kNobody : unit.message;
    bool was_empty = next.units.empty();
    ++unit.hop;
    unit.began = now;
    unit.ready = now + latency + shape_.router_ps;
    unit.tail = end - flit + latency + shape_.router_ps;
    next.units.push(unit);
    if (was_empty) want(buffer, now);
}

// The first unit leaves its buffer from `now` on.
void PacketNetwork::leave(int32_t number, const Unit& unit, int64_t now, int64_t end) {
    Buffer& buffer = buffers_[number];
    buffer.units.pop();
    if (number >= virtual_) {
        if (!cut_unit(number - virtual_)) return;
    } else {
        int32_t channel = number / shape_.virtual_channels;
        int64_t way = shape_.latency_ps[channel] + shape_.credit_ps;
        // All at once with the first flit: the next unit cannot use this room faster than it is left.
        int64_t back = std::max(now + way, unit.began + credits_for(channel, unit));
        buffer.returning.push({back, unit.flits});
        quiet_ = std::max(quiet_, end + way);
        if (channels_[channel].starved) request_arbitration(channel, std::max(back, channels_[channel].free_at));
        if (buffer.units.empty()) return;
    }
    want(number, now);
}

// Where its head is: the packets behind only wait for that.
int32_t PacketNetwork::stuck_at(int32_t message) const {
    int32_t channel = -1, hop = -1;
    for (size_t i = 0; i < channels_.size(); ++i) {
        for (int32_t buffer : channels_[i].wanted_by) {
            const Unit& unit = buffers_[buffer].units[0];
            if (unit.message != message || unit.hop <= hop) continue;
            hop = unit.hop;
            channel = static_cast<int32_t>(i);
        }
    }
    return channel;
}

}  // namespace weft
