// Every message has two events, its sending and its consumption. An event waits for all of its preconditions,
// so a schedule gets stuck exactly when the preconditions form a circle.
//
// Take the events step by step, in each step first all sendings and then all consumptions, both in row order.
// Every precondition but that of a free slot points backwards in this order. So the cheap test comes first: if
// the slots' preconditions point backwards too, there is no circle, and nothing else need be known. For few slots
// has_simple_order() finds that out without knowing the queues of connections.
//
// Python half: src/weft/verification/deadlock.py.
#include "verification/deadlock.hpp"

#include <algorithm>

#include "common/work_limit.hpp"

namespace weft::verification {
namespace {

constexpr int32_t kNone = -1;
constexpr int64_t kFewSlots = 8;

// Numbers connections in the order in which they are first asked for.
class ConnectionNumbers {
public:
    ConnectionNumbers(std::span<const int32_t> src, std::span<const int32_t> dst, std::span<const int32_t> route,
                      int64_t ranks)
        : src_(src), dst_(dst), route_(route) {
        bool routed = std::ranges::any_of(route, [](int32_t number) { return number >= 0; });
        // A plain table is faster, if it is not much larger than the columns.
        if (!routed && ranks * ranks <= 2 * static_cast<int64_t>(src.size())) {
            by_pair_.assign(static_cast<size_t>(ranks * ranks), kNone);
            ranks_ = static_cast<size_t>(ranks);
        }
        by_key_.clear(4096);
    }

    int32_t of(size_t row) {
        if (!by_pair_.empty()) {
            int32_t& number = by_pair_[static_cast<size_t>(src_[row]) * ranks_ + static_cast<size_t>(dst_[row])];
            if (number == kNone) number = pairs_++;
            return number;
        }
        // Ranks have 16 bits and routes 28, by weft.limits; -1 becomes 0.
        return static_cast<int32_t>(by_key_.number(static_cast<uint64_t>(route_[row] + 1) << 32 |
                                                   static_cast<uint64_t>(src_[row]) << 16 |
                                                   static_cast<uint64_t>(dst_[row])));
    }

private:
    std::span<const int32_t> src_, dst_, route_;
    size_t ranks_ = 0;
    int32_t pairs_ = 0;
    Bulk<int32_t> by_pair_;
    Numbering by_key_;
};

// Whether all events can happen step by step in one of two simple orders: all sendings of a step and then all
// consumptions, if no message of the step takes a slot that another one of it frees; or message after message, if no
// chunk moves twice in the step, so that none of its messages has to do with what another one writes.
bool has_simple_order(const MessageTable& messages, int64_t slots) {
    const Transfers& table = messages.transfers;
    ConnectionNumbers connections(table.src, table.dst, messages.route, table.ranks);
    auto count = static_cast<size_t>(slots);
    Bulk<int32_t> latest;  // steps of the latest messages of each connection, as many as there are slots, oldest first
    std::vector<int32_t> moved(table.chunks(), kNone);
    bool timely = true, apart = true;
    for (size_t message = 0; message < messages.starts.size(); ++message) {
        auto first = static_cast<size_t>(messages.starts[message]);
        bool last = message + 1 == messages.starts.size();
        size_t end = last ? table.size() : static_cast<size_t>(messages.starts[message + 1]);
        int32_t step = table.step[first];
        if (first > 0 && step != table.step[first - 1]) timely = apart = true;
        for (size_t row = first; row < end; ++row) {
            apart = apart && moved[table.chunk[row]] != step;
            moved[table.chunk[row]] = step;
        }
        if (table.src[first] != table.dst[first]) {
            size_t begin = static_cast<size_t>(connections.of(first)) * count;
            if (begin == latest.size()) latest.resize(begin + count, kNone);
            int32_t* mine = &latest[begin];
            timely = timely && mine[0] != step;
            std::copy(mine + 1, mine + count, mine);
            mine[count - 1] = step;
        }
        if (!timely && !apart) return false;
    }
    return true;
}

// Which rows a row waits for. A row reads one place and writes one, so three columns and a linked list hold it.
struct Dependencies {
    Bulk<int32_t> data;  // last write of the place read, in an earlier step
    Bulk<int32_t> writer;  // last write of the place written
    Bulk<int32_t> readers;  // newest read of the place written, since its last write
    Bulk<int32_t> next_reader;  // the read before it
    Bulk<int32_t> forward;  // first row that reads what this row wrote
};

Dependencies derive_dependencies(const Transfers& table) {
    size_t rows = table.size();
    Dependencies d;
    for (auto* column : {&d.data, &d.writer, &d.readers, &d.next_reader, &d.forward}) column->assign(rows, kNone);
    RowsByChunk by_chunk(table);
    Numbering places;
    std::vector<int32_t> writer, reader;
    for (size_t chunk = 0; chunk < table.chunks(); ++chunk) {
        auto own = by_chunk.rows(chunk);
        places.clear(std::min<size_t>(2 * own.size(), 4096));
        writer.clear();
        reader.clear();
        auto number = [&](Place place) {
            uint32_t n = places.number(place);
            if (n == writer.size()) {
                writer.push_back(kNone);
                reader.push_back(kNone);
            }
            return n;
        };
        for (size_t begin = 0, end = 0; begin < own.size(); begin = end) {
            while (end < own.size() && table.step[own[end]] == table.step[own[begin]]) ++end;
            for (size_t i = begin; i < end; ++i) {
                auto row = static_cast<int32_t>(own[i]);
                uint32_t n = number(table.read_place(row));
                d.data[row] = writer[n];
                if (writer[n] != kNone && d.forward[writer[n]] == kNone) d.forward[writer[n]] = row;
                d.next_reader[row] = reader[n];
                reader[n] = row;
            }
            for (size_t i = begin; i < end; ++i) {
                auto row = static_cast<int32_t>(own[i]);
                uint32_t n = number(table.write_place(row));
                d.writer[row] = writer[n];
                d.readers[row] = reader[n];
                writer[n] = row;
                reader[n] = kNone;
            }
        }
    }
    return d;
}

class Analysis {
public:
    explicit Analysis(const MessageTable& messages) : in_(messages), table_(messages.transfers) {
        count_ = static_cast<int32_t>(in_.starts.size());
        queue_messages();
        if (in_.fused) {
            derive();
            find_forwards();
        }
    }

    std::vector<Wait> circle(int64_t slots) {
        slots_ = slots;
        if (in_order()) return {};
        derive();
        return search();
    }

    int64_t minimum() {
        // More slots only ever remove preconditions, and with one per message of a connection none is left.
        int64_t enough = 1;
        while (!circle(enough).empty()) enough *= 2;
        int64_t stuck = enough / 2;
        while (enough - stuck > 1) {
            int64_t middle = stuck + (enough - stuck) / 2;
            (circle(middle).empty() ? enough : stuck) = middle;
        }
        return enough;
    }

private:
    int64_t first_row(int32_t message) const { return in_.starts[message]; }
    int64_t end_row(int32_t message) const {
        return message + 1 < count_ ? in_.starts[message + 1] : static_cast<int64_t>(table_.size());
    }
    int32_t step(int32_t message) const { return table_.step[first_row(message)]; }
    bool local(int32_t message) const { return table_.src[first_row(message)] == table_.dst[first_row(message)]; }

    // The messages of each connection in order, one connection after the other.
    void queue_messages() {
        Connections connections = number_connections(table_.src, table_.dst, in_.route);
        std::vector<int32_t> start(connections.first_row.size() + 1);
        for (int32_t m = 0; m < count_; ++m) ++start[connections.of_row[first_row(m)] + 1];
        for (size_t c = 1; c < start.size(); ++c) start[c] += start[c - 1];
        queue_.resize(count_);
        position_.resize(count_);
        queue_start_.resize(count_);
        std::vector<int32_t> fill(start.begin(), start.end() - 1);
        for (int32_t m = 0; m < count_; ++m) {
            int32_t c = connections.of_row[first_row(m)];
            queue_start_[m] = start[c];
            position_[m] = fill[c]++;
            queue_[position_[m]] = m;
        }
    }

    void derive() {
        if (derived_) return;
        depends_ = derive_dependencies(table_);
        message_of_.resize(table_.size());
        for (int32_t m = 0; m < count_; ++m) {
            std::fill(message_of_.begin() + first_row(m), message_of_.begin() + end_row(m), m);
        }
        derived_ = true;
    }

    // What a fused instruction sends on: the first message that reads what was received, if it sends that and
    // nothing else.
    void find_forwards() {
        forward_.assign(count_, kNone);
        for (int32_t m = 0; m < count_; ++m) {
            int64_t begin = first_row(m), end = end_row(m);
            int32_t row = depends_.forward[begin];
            if (row == kNone || local(m) || local(message_of_[row])) continue;
            int32_t onward = message_of_[row];
            bool same = first_row(onward) == row && end_row(onward) - row == end - begin;
            for (int64_t i = begin; same && i < end; ++i) same = depends_.forward[i] == row + (i - begin);
            if (same) forward_[m] = onward;
        }
    }

    // The message whose slot this one will take, or none.
    int32_t frees_slot(int32_t message) const {
        if (local(message)) return kNone;
        int64_t at = position_[message] - slots_;
        return at < queue_start_[message] ? kNone : queue_[at];
    }
    int32_t predecessor(int32_t message) const {
        if (local(message) || position_[message] == queue_start_[message]) return kNone;
        return queue_[position_[message] - 1];
    }

    // The cheap test: every slot is freed in an earlier step.
    bool in_order() const {
        for (int32_t m = 0; m < count_; ++m) {
            int32_t freed = frees_slot(m);
            if (freed != kNone && step(freed) >= step(m)) return false;
            if (!in_.fused || forward_[m] == kNone) continue;
            freed = frees_slot(forward_[m]);
            // Consumptions of one step are in row order, that is, in order of message numbers.
            if (freed != kNone && (step(freed) > step(m) || (step(freed) == step(m) && freed >= m))) return false;
        }
        return true;
    }

    // Events are numbered 2m (sending) and 2m + 1 (consumption). Calls need(event, reason) for each precondition.
    template <typename Need>
    void visit_needs(int32_t event, Need&& need) const {
        int32_t m = event / 2, before = predecessor(m);
        if (event % 2 == 0) {
            if (before != kNone) need(2 * before, Reason::order);
            if (int32_t freed = frees_slot(m); freed != kNone) need(2 * freed + 1, Reason::slot);
            for (int64_t row = first_row(m); row < end_row(m); ++row) {
                if (depends_.data[row] != kNone) need(2 * message_of_[depends_.data[row]] + 1, Reason::data);
            }
            return;
        }
        need(2 * m, Reason::sent);
        if (before != kNone) need(2 * before + 1, Reason::order);
        if (in_.fused && forward_[m] != kNone) {
            if (int32_t freed = frees_slot(forward_[m]); freed != kNone) need(2 * freed + 1, Reason::forward_slot);
        }
        for (int64_t row = first_row(m); row < end_row(m); ++row) {
            if (depends_.writer[row] != kNone) need(2 * message_of_[depends_.writer[row]] + 1, Reason::writers);
            for (int32_t r = depends_.readers[row]; r != kNone; r = depends_.next_reader[r]) {
                need(2 * message_of_[r], Reason::readers);
            }
        }
    }

    // Depth first along the preconditions; in the order of the steps, so that the search stays shallow.
    std::vector<Wait> search() const {
        enum : uint8_t { fresh, open, done };
        Bulk<uint8_t> state(2 * static_cast<size_t>(count_), fresh);
        WorkLimit work_limit;
        std::vector<int32_t> stack;  // an event to enter, or ~event to leave
        for (int32_t root = 0; root < 2 * count_; ++root) {
            if (state[root] != fresh) continue;
            stack.push_back(root);
            while (!stack.empty()) {
                int32_t event = stack.back();
                if (event < 0) {
                    state[~event] = done;
                    stack.pop_back();
                    continue;
                }
                if (state[event] != fresh) {
                    stack.pop_back();
                    continue;
                }
                work_limit.spend(64);
                state[event] = open;
                stack.back() = ~event;
                int32_t meets = kNone;
                visit_needs(event, [&](int32_t needed, Reason) {
                    if (state[needed] == open) meets = needed;
                    if (state[needed] == fresh) stack.push_back(needed);
                });
                if (meets != kNone) return describe(stack, meets, event);
            }
        }
        return {};
    }

    // The events entered and not left, from `begin` to `end`, wait for each other in a circle.
    std::vector<Wait> describe(const std::vector<int32_t>& stack, int32_t begin, int32_t end) const {
        std::vector<int32_t> events;
        bool inside = false;
        for (int32_t entry : stack) {
            if (entry >= 0) continue;
            inside = inside || ~entry == begin;
            if (inside) events.push_back(~entry);
            if (~entry == end) break;
        }
        events = shortened(events);
        std::vector<Wait> circle;
        for (size_t i = 0; i < events.size(); ++i) {
            int32_t awaited = events[(i + 1) % events.size()];
            Reason why = Reason::sent;
            visit_needs(events[i], [&](int32_t needed, Reason reason) {
                if (needed == awaited) why = reason;
            });
            circle.push_back({first_row(events[i] / 2), events[i] % 2 == 1, why});
        }
        return circle;
    }

    // The same circle, past every event that another one on it can jump.
    std::vector<int32_t> shortened(const std::vector<int32_t>& events) const {
        std::vector<size_t> at(2 * static_cast<size_t>(count_), 0);
        for (size_t i = 0; i < events.size(); ++i) at[events[i]] = i + 1;
        std::vector<int32_t> kept;
        for (size_t i = 0; i < events.size();) {
            kept.push_back(events[i]);
            size_t next = i + 1;
            visit_needs(events[i], [&](int32_t needed, Reason) {
                if (needed == events.front()) next = events.size();
                if (at[needed]) next = std::max(next, at[needed] - 1);
            });
            i = next;
        }
        return kept;
    }

    MessageTable in_;
    const Transfers& table_;
    int32_t count_ = 0;
    int64_t slots_ = 1;
    bool derived_ = false;
    Bulk<int32_t> queue_, position_, queue_start_;
    std::vector<int32_t> forward_;
    Bulk<int32_t> message_of_;
    Dependencies depends_;
};

}  // namespace

Connections number_connections(std::span<const int32_t> src, std::span<const int32_t> dst,
                               std::span<const int32_t> route) {
    Connections found;
    int64_t ranks = 0;
    for (auto column : {src, dst}) {
        for (int32_t rank : column) ranks = std::max<int64_t>(ranks, rank + 1);
    }
    ConnectionNumbers numbers(src, dst, route, ranks);
    found.of_row.resize(src.size());
    for (size_t row = 0; row < src.size(); ++row) {
        found.of_row[row] = numbers.of(row);
        if (found.of_row[row] == static_cast<int32_t>(found.first_row.size())) {
            found.first_row.push_back(static_cast<int64_t>(row));
        }
    }
    return found;
}

std::vector<Wait> find_deadlock(const MessageTable& messages, int64_t slots) {
    if (!messages.fused && slots <= kFewSlots && has_simple_order(messages, slots)) return {};
    return Analysis(messages).circle(slots);
}

int64_t minimum_slots(const MessageTable& messages) { return Analysis(messages).minimum(); }

}  // namespace weft::verification
