// Python half: src/weft/packets/packet_simulator.py (channels are laid out by network_channels.py).
#include "packets/flit_network.hpp"

#include <algorithm>
#include <tuple>

namespace weft {

namespace {

// The first of the sorted items whose number is at least `turn`, or the first at all.
template <typename Iterator, typename Number>
Iterator in_turn(Iterator begin, Iterator end, Number turn, auto number_of) {
    auto found = std::find_if(begin, end, [&](const auto& item) { return number_of(item) >= turn; });
    return found == end ? begin : found;
}

// A head that stands behind another packet of its virtual channel is routed when that has left: a cycle for the
// routing where a router takes more than three, and one each for the two allocators.
constexpr int64_t kLongestHandover = 3;

}  // namespace

FlitNetwork::FlitNetwork(const PacketNetworkShape& shape, std::vector<Message>& messages, int64_t cycle_ps,
                         WorkLimit& work_limit, PacketEventQueue& queue, MessageListener& listener)
    : shape_(shape),
      messages_(messages),
      cycle_(cycle_ps),
      stage_(std::clamp<int64_t>(shape.router_ps - cycle_ps, 0, 2 * cycle_ps)),
      work_limit_(work_limit),
      queue_(queue),
      listener_(listener),
      channels_(shape.flit_ps.size()),
      buffers_(shape.flit_ps.size() * shape.virtual_channels) {
    busy_.assign(shape.flit_ps.size(), 0);
    for (Buffer& buffer : buffers_) buffer.room = shape.buffer_flits;
}

int32_t FlitNetwork::next_channel(const Worm& worm) const {
    if (worm.hop == 0) return messages_[worm.message].inject;
    if (gets_out(worm)) return messages_[worm.message].eject;
    return shape_.path_channels[shape_.path_offsets[worm.path] + worm.hop - 1];
}

// Virtual channels behind its next channel that a worm may have: the first, and the one after the last.
std::pair<int32_t, int32_t> FlitNetwork::choices(const Worm& worm) const {
    int32_t first = next_channel(worm) * shape_.virtual_channels, count = shape_.virtual_channels;
    if (worm.hop > 0 && shape_.classes > 1 && !gets_out(worm)) {
        count /= shape_.classes;
        first += count * shape_.path_class[shape_.path_offsets[worm.path] + worm.hop - 1];
    }
    return {first, first + count};
}

// Flits of the first packet of a worm: it asks only for virtual channels that have room for all of them.
int64_t FlitNetwork::first_packet_flits(const Worm& worm) const {
    const Message& message = messages_[worm.message];
    int64_t packet = shape_.hold ? message.flits + message.first_more : worm.flits;
    return std::min({packet, worm.flits, shape_.buffer_flits});
}

void FlitNetwork::tick_at(int64_t when) {
    if (when >= tick_) return;
    tick_ = when;
    queue_.push({when, 0, PacketEventKind::arbitrate});
}

void FlitNetwork::enter(int32_t message, int64_t ready, int64_t now) {
    int32_t number = messages_[message].inject;
    Channel& port = channels_[number];
    port.entering.push({message, ready});
    if (!port.sending) {
        port.sending = true;
        sending_.push_back(number);
    }
    tick_at(std::max(ready, now));
}

void FlitNetwork::arbitrate(const PacketEvent& event) {
    if (event.time != tick_) return;
    tick_ = kNever;
    int64_t now = event.time;
    work_limit_.spend(20 * (busy_buffers_.size() + moving_.size() + sending_.size()));
    receive(now);
    bool moved = deal_virtual_channels(now);
    moved |= pass(now);
    moved |= inject(now);
    int64_t next = next_time(moved, now);
    if (next != kNever) tick_at(next);
}

// Flits that have come into buffers, and credits that are back.
void FlitNetwork::receive(int64_t now) {
    for (int32_t number : moving_) {
        Channel& channel = channels_[number];
        while (!channel.under_way.empty() && channel.under_way.front().time <= now) {
            const Flit& flit = channel.under_way.front();
            Buffer& buffer = buffers_[flit.buffer];
            if (flit.flits > 0) {
                bool waits = !buffer.worms.empty();
                Worm worm{flit.message, flit.path, flit.hop, flit.flits, flit.is_last};
                worm.ready = waits ? kNever : flit.time + shape_.router_ps - stage_;
                worm.arrived = 1;
                buffer.worms.push(worm);
                list(flit.buffer);
            } else {
                ++buffer.worms.back().arrived;
            }
            channel.under_way.pop();
        }
        while (!channel.returning.empty() && channel.returning.front().time <= now) {
            ++buffers_[channel.returning.front().buffer].room;
            channel.returning.pop();
        }
    }
    std::erase_if(moving_, [&](int32_t number) {
        Channel& channel = channels_[number];
        channel.moving = !channel.under_way.empty() || !channel.returning.empty();
        return !channel.moving;
    });
}

void FlitNetwork::list(int32_t number) {
    if (buffers_[number].listed) return;
    buffers_[number].listed = true;
    busy_buffers_.push_back(number);
}

// Heads ask for all virtual channels that are free; each of those offers itself to one head, and each head takes one.
bool FlitNetwork::deal_virtual_channels(int64_t now) {
    offers_.clear();
    for (int32_t number : busy_buffers_) {
        Buffer& buffer = buffers_[number];
        if (buffer.out != kNobody || buffer.worms.front().ready > now + cycle_) continue;
        auto [first, last] = choices(buffer.worms.front());
        int64_t needed = first_packet_flits(buffer.worms.front());
        for (int32_t i = first; i < last; ++i) {
            if (!buffers_[i].taken && buffers_[i].room >= needed) offers_.emplace_back(i, number);
        }
    }
    if (offers_.empty()) return false;
    std::sort(offers_.begin(), offers_.end());
    std::vector<std::pair<int32_t, int32_t>> offered;  // to whom, and which
    for (auto begin = offers_.begin(); begin != offers_.end();) {
        auto end = std::find_if(begin, offers_.end(), [&](const auto& item) { return item.first != begin->first; });
        auto chosen = in_turn(begin, end, static_cast<int32_t>(buffers_[begin->first].grant),
                              [](const auto& item) { return item.second; });
        offered.emplace_back(chosen->second, chosen->first);
        begin = end;
    }
    std::sort(offered.begin(), offered.end());
    for (auto begin = offered.begin(); begin != offered.end();) {
        auto end = std::find_if(begin, offered.end(), [&](const auto& item) { return item.first != begin->first; });
        Buffer& buffer = buffers_[begin->first];
        auto chosen =
            in_turn(begin, end, static_cast<int32_t>(buffer.accept), [](const auto& item) { return item.second; });
        buffer.out = chosen->second;
        buffer.accept = chosen->second + 1;
        buffer.worms.front().ready = now + cycle_;
        buffers_[chosen->second].taken = true;
        buffers_[chosen->second].grant = begin->first + 1;
        begin = end;
    }
    return true;
}

// Every output grants its channel to one input, every input accepts one grant, and that flit moves.
bool FlitNetwork::pass(int64_t now) {
    requests_.clear();
    for (int32_t number : busy_buffers_) {
        Buffer& buffer = buffers_[number];
        if (buffer.out == kNobody) continue;
        Worm& worm = buffer.worms.front();
        if (worm.sent == worm.arrived || worm.ready > now) continue;
        int32_t output = buffer.out / shape_.virtual_channels;
        if (channels_[output].free_at > now) continue;
        if (!gets_out(worm) && buffers_[buffer.out].room == 0) continue;
        requests_.push_back({output, number / shape_.virtual_channels, number});
    }
    if (requests_.empty()) return false;
    auto by_output = [](const Request& a, const Request& b) {
        return std::tie(a.output, a.input, a.buffer) < std::tie(b.output, b.input, b.buffer);
    };
    std::sort(requests_.begin(), requests_.end(), by_output);
    granted_.clear();
    for (auto begin = requests_.begin(); begin != requests_.end();) {
        auto end = std::find_if(begin, requests_.end(), [&](const Request& r) { return r.output != begin->output; });
        auto chosen =
            in_turn(begin, end, channels_[begin->output].next_input, [](const Request& r) { return r.input; });
        auto other = std::find_if(chosen, end, [&](const Request& r) { return r.input != chosen->input; });
        granted_.push_back(first_asking(chosen, other));
        begin = end;
    }
    std::sort(granted_.begin(), granted_.end(), [](const Request& a, const Request& b) {
        return std::tie(a.input, a.output) < std::tie(b.input, b.output);
    });
    for (auto begin = granted_.begin(); begin != granted_.end();) {
        auto end = std::find_if(begin, granted_.end(), [&](const Request& r) { return r.input != begin->input; });
        Channel& input = channels_[begin->input];
        auto chosen = in_turn(begin, end, input.next_output, [](const Request& r) { return r.output; });
        input.next_output = chosen->output + 1;
        input.next_buffer = chosen->buffer + 1;
        channels_[chosen->output].next_input = chosen->input + 1;
        move(*chosen, now);
        begin = end;
    }
    std::erase_if(busy_buffers_, [&](int32_t number) {
        buffers_[number].listed = !buffers_[number].worms.empty();
        return !buffers_[number].listed;
    });
    return true;
}

// Of the virtual channels of one input that ask for one output: the earliest step if steps have priority, then in turn.
FlitNetwork::Request FlitNetwork::first_asking(std::vector<Request>::const_iterator begin,
                                               std::vector<Request>::const_iterator end) {
    auto step_of = [&](const Request& r) { return messages_[buffers_[r.buffer].worms.front().message].priority; };
    int32_t turn = channels_[begin->input].next_buffer;
    auto best = begin;
    for (auto other = begin + 1; other != end; ++other) {
        auto rank = [&](const Request& r) { return std::make_tuple(step_of(r), r.buffer < turn, r.buffer); };
        if (rank(*other) < rank(*best)) best = other;
    }
    return *best;
}

// One flit of the first worm of a buffer goes on to the next channel.
void FlitNetwork::move(const Request& request, int64_t now) {
    Buffer& buffer = buffers_[request.buffer];
    Worm& worm = buffer.worms.front();
    int64_t way = shape_.latency_ps[request.input] + shape_.credit_ps;
    Channel& input = channels_[request.input];
    input.returning.push({now + way, request.buffer});
    if (!input.moving) {
        input.moving = true;
        moving_.push_back(request.input);
    }
    quiet_ = std::max(quiet_, now + shape_.flit_ps[request.output] + way);
    bool out = gets_out(worm);
    send(request.output, buffer.out, worm, now);
    if (out) {
        int64_t latency = shape_.latency_ps[request.output];
        quiet_ = std::max(quiet_, now + 2 * latency);
        if (worm.sent == worm.flits && worm.is_last) listener_.delivered(worm.message, now + latency);
    }
    if (worm.sent < worm.flits) return;
    buffer.worms.pop();
    buffer.out = kNobody;
    if (buffer.worms.empty()) return;
    int64_t handover = std::min(shape_.router_ps - cycle_, kLongestHandover * cycle_);
    buffer.worms.front().ready = now + std::max(handover, 2 * cycle_);
}

// A flit of a worm starts on a channel, into the virtual channel `behind` it.
void FlitNetwork::send(int32_t number, int32_t behind, Worm& worm, int64_t now) {
    Channel& channel = channels_[number];
    int64_t flit = shape_.flit_ps[number];
    channel.free_at = now + flit;
    busy_[number] += flit;
    ++units_;
    bool head = worm.sent == 0, out = gets_out(worm);
    ++worm.sent;
    Buffer& next = buffers_[behind];
    if (worm.sent == worm.flits) next.taken = false;
    if (out) return;
    --next.room;
    most_ = std::max(most_, shape_.buffer_flits - next.room);
    int64_t there = now + shape_.latency_ps[number] + stage_;
    channel.under_way.push({there, behind, worm.message, worm.path, worm.hop + 1, head ? worm.flits : 0, worm.is_last});
    if (!channel.moving) {
        channel.moving = true;
        moving_.push_back(number);
    }
}

// The next worm of a port takes a virtual channel in turn; false if none is free.
bool FlitNetwork::begin(int32_t number, int64_t now) {
    Channel& port = channels_[number];
    auto [index, ready] = port.entering.front();
    if (ready > now) return false;
    Message& message = messages_[index];
    for (int32_t i = 1; i <= shape_.virtual_channels; ++i) {
        int32_t place = (port.turn + i) % shape_.virtual_channels;
        int32_t behind = number * shape_.virtual_channels + place;
        if (buffers_[behind].taken) continue;
        int64_t packets = shape_.hold ? message.packets : 1;
        int64_t flits = packets * message.flits + (message.injected == 0 ? message.first_more : 0);
        bool is_last = message.injected + packets == message.packets;
        if (is_last) flits -= message.last_less;
        int64_t turn = shape_.hold ? index : message.injected;
        auto path = static_cast<int32_t>(message.path + turn % message.paths);
        // What has neither head nor data still goes through, as one flit.
        Worm worm{index, path, 0, std::max<int64_t>(flits, 1), is_last};
        if (buffers_[behind].room < first_packet_flits(worm)) continue;
        port.worm = worm;
        port.injecting = behind;
        port.turn = place;
        buffers_[behind].taken = true;
        return true;
    }
    return false;
}

bool FlitNetwork::inject(int64_t now) {
    bool moved = false;
    for (int32_t number : sending_) {
        Channel& port = channels_[number];
        if (port.free_at > now) continue;
        if (port.injecting == kNobody && !begin(number, now)) continue;
        if (buffers_[port.injecting].room == 0) continue;
        Worm& worm = port.worm;
        Message& message = messages_[worm.message];
        // A packet begins with the head of the worm, and then after every full one.
        int64_t first = message.flits + (shape_.hold ? message.first_more : 0);
        bool starts = worm.sent == 0 || (shape_.hold && worm.sent >= first && (worm.sent - first) % message.flits == 0);
        if (starts && message.injected < message.packets) {
            listener_.injected(worm.message, 1, now, message.flits * shape_.flit_ps[number]);
            ++message.injected;
        }
        send(number, port.injecting, worm, now);
        moved = true;
        if (worm.sent < worm.flits) continue;
        port.injecting = kNobody;
        if (worm.is_last) port.entering.pop();
    }
    std::erase_if(sending_, [&](int32_t number) {
        channels_[number].sending = !channels_[number].entering.empty();
        return !channels_[number].sending;
    });
    return moved;
}

// When something can change: the next cycle after a move, else when the first flit, credit or message is there.
int64_t FlitNetwork::next_time(bool moved, int64_t now) {
    if (moved) return now + cycle_;
    int64_t next = kNever;
    for (int32_t number : moving_) {
        Channel& channel = channels_[number];
        if (!channel.under_way.empty()) next = std::min(next, channel.under_way.front().time);
        if (!channel.returning.empty()) next = std::min(next, channel.returning.front().time);
    }
    for (int32_t number : busy_buffers_) {
        Buffer& buffer = buffers_[number];
        int64_t ready = buffer.worms.front().ready;
        if (buffer.out == kNobody) ready -= cycle_;
        if (ready > now) next = std::min(next, ready);
        if (buffer.out != kNobody) {
            int64_t free_at = channels_[buffer.out / shape_.virtual_channels].free_at;
            if (free_at > now) next = std::min(next, free_at);
        }
    }
    for (int32_t number : sending_) {
        Channel& port = channels_[number];
        int64_t ready = std::max(port.free_at, port.injecting == kNobody ? port.entering.front().second : 0);
        if (ready > now) next = std::min(next, ready);
    }
    return next;
}

int32_t FlitNetwork::stuck_at(int32_t message) const {
    int32_t channel = -1, hop = -1;
    for (int32_t number : busy_buffers_) {
        const Worm& worm = buffers_[number].worms[0];
        if (worm.message != message || worm.hop <= hop) continue;
        hop = worm.hop;
        channel = next_channel(worm);
    }
    return channel;
}

}  // namespace weft
