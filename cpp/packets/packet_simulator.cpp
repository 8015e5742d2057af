// Python half: src/weft/packets/packet_simulator.py.
#include "packets/packet_simulator.hpp"

#include <algorithm>
#include <memory>
#include <stdexcept>

#include "packets/flit_network.hpp"

namespace weft {

namespace {

class NetworkInterfaces final : public MessageListener {
public:
    NetworkInterfaces(const TableView& table, const PacketForm& form, const ExecutionRules& rules,
                      const PacketNetworkShape& shape, std::span<const int32_t> inject, std::span<const int32_t> eject,
                      int32_t pieces)
        : table_(table),
          rules_(rules),
          inject_(inject),
          eject_(eject),
          messages_(table.send_dst.size()),
          ranks_(table.rank_steps.size() - 1),
          ports_(inject.size()),
          needs_(table.entry_needs.begin(), table.entry_needs.end()),
          sent_(table.entry_needs.size(), 0),
          work_limit_(rules.max_work) {
        if (pieces < 0) {
            network_ = std::make_unique<FlitNetwork>(shape, messages_, rules.cycle_ps, work_limit_, queue_, *this);
        } else {
            network_ = std::make_unique<PacketNetwork>(shape, messages_, pieces, queue_, *this);
        }
        prepare(form);
        outcome_.send_start_ps.assign(messages_.size(), -1);
        outcome_.send_arrived_ps.assign(messages_.size(), -1);
        outcome_.rank_finish_ps.assign(ranks_.size(), 0);
    }

    ExecutionOutcome run() {
        for (size_t i = 0; i < ranks_.size(); ++i) {
            Rank& rank = ranks_[i];
            rank.step = table_.rank_steps[i];
            rank.entry = table_.step_entries[rank.step];
            rank.free_ports = rules_.ports;
            auto number = static_cast<int32_t>(i);
            if (is_nop(number)) rank.idle_until = rules_.nop_ps;
            wake(number, std::max(rank.idle_until, rules_.cycle_ps));
        }
        std::vector<PacketEvent> batch;
        while (!queue_.empty()) {
            queue_.pop(batch);
            if (batch.front().time > rules_.max_time_ps) throw std::overflow_error("simulated time");
            outcome_.events += static_cast<int64_t>(batch.size());
            if (outcome_.events > rules_.max_events) throw TooMany("events");
            work_limit_.spend(kEventWork * batch.size());
            for (const PacketEvent& event : batch) handle(event);
        }
        finish();
        return std::move(outcome_);
    }

    void injected(int32_t message, int64_t count, int64_t now, int64_t packet_ps) override {
        int32_t number = port_of_[message];
        Port& port = ports_[number];
        port.before = port.injected;
        port.injected += count;
        port.began = now;
        port.packet_ps = packet_ps;
        if (port.threshold > port.before && port.threshold <= port.injected) free_after(number);
    }

    void delivered(int32_t message, int64_t when) override {
        queue_.push({when + rules_.receive_cycles * rules_.cycle_ps, message, PacketEventKind::arrived});
    }

private:
    struct Rank {
        int64_t step = 0;
        int64_t entry = 0;  // all before it are done
        int64_t issue_at = -1;
        int64_t idle_until = 0;
        int32_t free_ports = 0;
        bool fresh = false;    // nothing of this step was sent yet
        bool closing = false;  // the next step waits for all ports, whatever the rules
        int64_t aggregates_until = 0;
    };
    struct Port {
        bool busy = false;
        int64_t queued = 0, injected = 0;  // packets, ever
        int64_t before = 0, began = 0, packet_ps = 0;  // of the last unit: packets ahead of it, and when they start
        int64_t threshold = 0;  // that packet's start makes room for the last one of the message
        int64_t not_before = 0, slack = 0;
    };

    void prepare(const PacketForm& form);
    void handle(const PacketEvent& event);
    void wake(int32_t rank, int64_t when);
    void issue(int32_t rank, int64_t now);
    void free_after(int32_t port);
    void send(int32_t number, int32_t rank, int32_t port, int64_t now);
    bool step_done(int32_t rank, int64_t now);
    void met(int32_t send, int64_t now);
    void aggregate(int32_t send, int64_t now);
    int32_t next_entry(const Rank& rank);
    int32_t free_port(int32_t rank, int32_t send) const;
    void finish();

    bool at_end(int32_t rank) const { return ranks_[rank].step == table_.rank_steps[rank + 1]; }
    bool is_nop(int32_t rank) const {
        int64_t step = ranks_[rank].step;
        return !at_end(rank) && table_.step_entries[step] == table_.step_entries[step + 1];
    }

    static constexpr size_t kEventWork = 150;

    const TableView table_;
    const ExecutionRules rules_;
    std::span<const int32_t> inject_, eject_;
    PacketEventQueue queue_;
    std::vector<Message> messages_;
    std::unique_ptr<MessageCarrier> network_;
    std::vector<Rank> ranks_;
    std::vector<Port> ports_;
    std::vector<int32_t> port_of_;
    std::vector<int32_t> needs_;
    std::vector<int64_t> sent_;  // sends of an entry that are out
    std::vector<uint8_t> done_;
    WorkLimit work_limit_;
    ExecutionOutcome outcome_;
};

void NetworkInterfaces::prepare(const PacketForm& form) {
    port_of_.assign(messages_.size(), -1);
    done_.assign(needs_.size(), 0);
    int64_t full = (form.payload_bytes + form.flit_bytes - 1) / form.flit_bytes;
    for (size_t i = 0; i < messages_.size(); ++i) {
        Message& message = messages_[i];
        int64_t bytes = table_.send_bytes[i];
        message.path = table_.send_path[i];
        message.paths = table_.send_paths[i];
        message.eject = eject_[static_cast<size_t>(table_.send_dst[i]) * rules_.ports + table_.send_to[i]];
        message.priority = rules_.prioritised ? table_.send_step[i] : 0;
        message.packets = std::max<int64_t>(1, (bytes + form.payload_bytes - 1) / form.payload_bytes);
        message.flits = full + (form.head_per_message ? 0 : form.head_flits);
        message.first_more = form.head_per_message ? form.head_flits : 0;
        int64_t rest = bytes - (message.packets - 1) * form.payload_bytes;
        message.last_less = form.padded ? 0 : full - (rest + form.flit_bytes - 1) / form.flit_bytes;
        outcome_.packets += message.packets;
        outcome_.flits += message.packets * message.flits + message.first_more - message.last_less;
    }
}

void NetworkInterfaces::wake(int32_t number, int64_t when) {
    Rank& rank = ranks_[number];
    if (rank.issue_at >= 0 && rank.issue_at <= when) return;
    rank.issue_at = when;
    queue_.push({when, number, PacketEventKind::issue});
}

void NetworkInterfaces::handle(const PacketEvent& event) {
    switch (event.kind) {
        case PacketEventKind::arbitrate: network_->arbitrate(event); break;
        case PacketEventKind::port_free: {
            int32_t rank = event.id / rules_.ports;
            ports_[event.id].busy = false;
            ++ranks_[rank].free_ports;
            wake(rank, event.time + rules_.cycle_ps);
            break;
        }
        case PacketEventKind::issue:
            if (ranks_[event.id].issue_at != event.time) break;
            ranks_[event.id].issue_at = -1;
            issue(event.id, event.time);
            break;
        case PacketEventKind::arrived: aggregate(event.id, event.time); break;
        case PacketEventKind::aggregated: met(event.id, event.time); break;
    }
}

// The first entry of the step that waits for nothing and has something left to do, or -1.
int32_t NetworkInterfaces::next_entry(const Rank& rank) {
    int64_t end = table_.step_entries[rank.step + 1], entry = rank.entry;
    while (entry < end && (needs_[entry] > 0 || done_[entry])) ++entry;
    work_limit_.spend(static_cast<size_t>(entry - rank.entry));
    return entry < end ? static_cast<int32_t>(entry) : -1;
}

int32_t NetworkInterfaces::free_port(int32_t rank, int32_t send) const {
    int32_t first = rank * rules_.ports;
    if (table_.send_from[send] >= 0) {
        int32_t port = first + table_.send_from[send];
        return ports_[port].busy ? -1 : port;
    }
    for (int32_t port = first; port < first + rules_.ports; ++port) {
        if (!ports_[port].busy) return port;
    }
    return -1;
}

void NetworkInterfaces::issue(int32_t number, int64_t now) {
    Rank& rank = ranks_[number];
    while (is_nop(number)) {
        if (rank.idle_until > now) {
            wake(number, rank.idle_until);
            return;
        }
        ++rank.step;
        rank.fresh = true;
        if (rules_.nop_ps == 0) continue;
        if (is_nop(number)) {
            rank.idle_until = now + rules_.nop_ps;
            wake(number, rank.idle_until);
        } else {
            wake(number, now + rules_.cycle_ps);
        }
        return;
    }
    if (at_end(number)) return;
    bool all_free = rank.free_ports == rules_.ports;
    if (((rank.fresh && rules_.strict) || rank.closing) && !all_free) return;
    rank.fresh = false;
    rank.closing = false;
    // Ports that this call takes begin with the next cycle; a step's end is acted on in the next one as well.
    for (;;) {
        int32_t entry = next_entry(rank);
        if (entry < 0) return;
        int64_t next = table_.entry_sends[entry] + sent_[entry];
        if (next < table_.entry_sends[entry + 1]) {
            auto send_number = static_cast<int32_t>(next);
            int32_t port = free_port(number, send_number);
            if (port < 0) return;
            send(send_number, number, port, now);
            ++sent_[entry];
            ++next;
        } else {
            rank.closing = true;
        }
        if (next == table_.entry_sends[entry + 1]) done_[entry] = 1;
        if (step_done(number, now)) return;
    }
}

// Moves on to the next step if all of this one is on its way.
bool NetworkInterfaces::step_done(int32_t number, int64_t now) {
    Rank& rank = ranks_[number];
    int64_t end = table_.step_entries[rank.step + 1];
    while (rank.entry < end && done_[rank.entry]) ++rank.entry;
    if (rank.entry < end) return false;
    ++rank.step;
    rank.fresh = true;
    if (is_nop(number) && rules_.nop_ps > 0) {
        // Its own step still runs, and then the idle one.
        rank.idle_until = now + 2 * rules_.nop_ps;
        wake(number, rank.idle_until);
    } else if (!at_end(number)) {
        wake(number, now + rules_.cycle_ps);
    }
    return true;
}

// The packet that makes room is on its way, in the last unit or before it: the port is free from then on.
void NetworkInterfaces::free_after(int32_t number) {
    Port& port = ports_[number];
    int64_t free_at = port.not_before;
    if (port.threshold > port.before) {
        int64_t start = port.began + (port.threshold - port.before - 1) * port.packet_ps;
        free_at = std::max(free_at, start + port.slack);
    }
    port.threshold = 0;
    queue_.push({free_at, number, PacketEventKind::port_free});
}

void NetworkInterfaces::send(int32_t number, int32_t rank, int32_t port_number, int64_t now) {
    Port& port = ports_[port_number];
    Message& message = messages_[number];
    port.busy = true;
    --ranks_[rank].free_ports;
    port_of_[number] = port_number;
    message.inject = inject_[port_number];
    outcome_.send_start_ps[number] = now;
    port.queued += message.packets;
    // One packet a cycle goes into the queue, as long as there is room.
    port.not_before = now + message.packets * rules_.cycle_ps;
    int64_t fit = rules_.queue_flits / message.flits;
    int64_t rest = rules_.queue_flits - fit * message.flits;
    int64_t threshold = port.queued - rules_.queue_packets - fit;
    port.slack = (rest > 0 ? message.flits - rest : message.flits) * rules_.cycle_ps + rules_.cycle_ps;
    port.threshold = threshold;
    if (threshold <= port.injected) free_after(port_number);
    network_->enter(number, now + rules_.send_cycles * rules_.cycle_ps, now);
}

void NetworkInterfaces::aggregate(int32_t number, int64_t now) {
    outcome_.send_arrived_ps[number] = now;
    int64_t cost = table_.send_aggregate_ps[number];
    if (cost == 0) {
        met(number, now);
        return;
    }
    Rank& rank = ranks_[table_.send_dst[number]];
    int64_t start = std::max(now, rank.aggregates_until) + rules_.cycle_ps;
    rank.aggregates_until = start + cost;
    queue_.push({rank.aggregates_until, number, PacketEventKind::aggregated});
}

void NetworkInterfaces::met(int32_t number, int64_t now) {
    int32_t rank = table_.send_dst[number];
    outcome_.time_ps = std::max(outcome_.time_ps, now);
    outcome_.rank_finish_ps[rank] = std::max(outcome_.rank_finish_ps[rank], now);
    for (int64_t i = table_.wake_offsets[number]; i < table_.wake_offsets[number + 1]; ++i) {
        --needs_[table_.wakes[i]];
    }
    if (table_.wake_offsets[number] < table_.wake_offsets[number + 1]) wake(rank, now + rules_.cycle_ps);
}

void NetworkInterfaces::finish() {
    for (size_t i = 0; i < messages_.size(); ++i) {
        if (outcome_.send_arrived_ps[i] >= 0 || outcome_.send_start_ps[i] < 0) continue;
        outcome_.stuck_send = static_cast<int32_t>(i);
        outcome_.stuck_channel = network_->stuck_at(outcome_.stuck_send);
        break;
    }
    for (size_t entry = 0; entry < done_.size() && outcome_.stuck_entry < 0; ++entry) {
        if (!done_[entry]) outcome_.stuck_entry = static_cast<int32_t>(entry);
    }
    outcome_.quiet_ps = std::max(outcome_.time_ps, network_->quiet_ps());
    outcome_.units = network_->units();
    outcome_.most_flits = network_->most_flits();
    outcome_.channel_busy_ps = std::move(network_->busy_ps());
}

}  // namespace

ExecutionOutcome execute_tables(const TableView& table, const PacketForm& form, const ExecutionRules& rules,
                                const PacketNetworkShape& shape, std::span<const int32_t> inject,
                                std::span<const int32_t> eject, int32_t pieces) {
    return NetworkInterfaces(table, form, rules, shape, inject, eject, pieces).run();
}

}  // namespace weft
