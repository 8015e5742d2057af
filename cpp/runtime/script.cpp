// Python half: src/weft/runtime/engines/native_engine.py.
#include "runtime/script.hpp"

#include <algorithm>
#include <map>

namespace weft::runtime {

Layout::Place Layout::find(int32_t rank, int32_t chunk, int32_t slot) const {
    if (pairs) {
        int32_t from = chunk / ranks, to = chunk % ranks;
        if (slot == 0 && rank == from) return {Region::buffer, start[chunk] - start[static_cast<size_t>(from) * ranks]};
        if (slot == 0 && rank == to) {
            int64_t offset = 0;
            for (int32_t other = 0; other < from; ++other) {
                int32_t before = other * ranks + to;
                offset += start[before + 1] - start[before];
            }
            return {Region::output, offset};
        }
        return {Region::scratch, slot * start.back() + start[chunk]};
    }
    if (slot == 0) return {Region::buffer, start[chunk]};
    return {Region::scratch, (slot - 1) * start.back() + start[chunk]};
}

int64_t Layout::scratch_elements(int32_t slots) const { return (pairs ? slots : slots - 1) * start.back(); }

namespace {

// Where values lie over time, if results go elsewhere than the input.
class Places {
public:
    Places(const Rows& rows, const Layout& layout) : rows_(rows), layout_(layout) {
        if (!layout.elsewhere) return;
        first_write_.assign(static_cast<size_t>(layout.ranks) * chunks(), kNone);
        for (size_t row = 0; row < rows.size(); ++row) {
            int32_t& first = first_write_[place(rows.dst[row], rows.chunk[row])];
            if (rows.to_slot(row) == 0 && first == kNone) first = static_cast<int32_t>(row);
        }
    }

    // What the sender of a row reads. In the step of the first write that is the input still.
    Layout::Place source(size_t row) const {
        int32_t src = rows_.src[row], chunk = rows_.chunk[row];
        Layout::Place found = layout_.find(src, chunk, rows_.from_slot(row));
        if (!layout_.elsewhere || rows_.from_slot(row) != 0) return found;
        int32_t first = first_write_[place(src, chunk)];
        return first != kNone && rows_.step[row] > rows_.step[first] ? in_output(src, found) : found;
    }

    // Where the receiver of a row puts it.
    Layout::Place target(size_t row) const {
        int32_t dst = rows_.dst[row];
        Layout::Place found = layout_.find(dst, rows_.chunk[row], rows_.to_slot(row));
        return layout_.elsewhere && rows_.to_slot(row) == 0 ? in_output(dst, found) : found;
    }

    // What the receiver adds a row to.
    Layout::Place base(size_t row) const {
        int32_t dst = rows_.dst[row], chunk = rows_.chunk[row];
        bool first = layout_.elsewhere && rows_.to_slot(row) == 0 &&
                     first_write_[place(dst, chunk)] == static_cast<int32_t>(row);
        return first ? layout_.find(dst, chunk, 0) : target(row);
    }

private:
    Layout::Place in_output(int32_t rank, Layout::Place in_buffer) const {
        int64_t start = layout_.output_start.empty() ? 0 : layout_.output_start[static_cast<size_t>(rank)];
        return {Region::output, in_buffer.offset - start};
    }

    size_t chunks() const { return layout_.start.size() - 1; }
    size_t place(int32_t rank, int32_t chunk) const {
        return static_cast<size_t>(rank) * chunks() + static_cast<size_t>(chunk);
    }

    const Rows& rows_;
    const Layout& layout_;
    std::vector<int32_t> first_write_;  // by rank and chunk
};

// Deals tasks out to the connections of each peer.
class Queues {
public:
    explicit Queues(std::vector<Script::Queue>& queues) : queues_(queues) {}

    // The last of the tasks.
    void add(std::vector<Task>& tasks, int32_t connection, int32_t connections) {
        Task& task = tasks.back();
        if (connection == ConnectionChoice::kInTurn) connection = turn_[task.peer]++ % connections;
        Script::Queue& queue = find(task.peer, connection);
        task.queue = static_cast<int32_t>(&queue - queues_.data());
        task.number = static_cast<uint32_t>(queue.tasks.size());
        queue.tasks.push_back(static_cast<int32_t>(tasks.size()) - 1);
    }

    // Makes one even if nothing goes over it: its ends meet all the same.
    Script::Queue& find(int32_t peer, int32_t connection) {
        auto [found, fresh] = known_.try_emplace({peer, connection}, queues_.size());
        if (fresh) queues_.push_back({peer, connection, {}, {}});
        return queues_[found->second];
    }

private:
    std::vector<Script::Queue>& queues_;
    std::map<std::pair<int32_t, int32_t>, size_t> known_;
    std::map<int32_t, int32_t> turn_;
};

// Orders the tasks of each queue as sockets send them; a task's `turn` is its place in its message so far.
void take_turns(Script& script) {
    auto order = [&](Script::Queue& queue) {
        queue.turns = queue.tasks;
        std::ranges::stable_sort(queue.turns, {}, [&](int32_t task) { return script.tasks[task].turn; });
        for (size_t turn = 0; turn < queue.turns.size(); ++turn) {
            script.tasks[queue.turns[turn]].turn = static_cast<uint32_t>(turn);
        }
    };
    std::ranges::for_each(script.sends, order);
    std::ranges::for_each(script.receives, order);
}

class Writer {
public:
    Writer(const Rows& rows, const Cut& cut, const Layout& layout, const ConnectionChoice& connections, int32_t rank)
        : rows_(rows),
          layout_(layout),
          places_(rows, layout),
          connections_(connections),
          rank_(rank),
          program_(lower(rows, cut)) {
        script_.scratch_elements = layout.scratch_elements(cut.slots);
    }

    Script write() {
        find_pushes();
        number();
        for (size_t id = 0; id < program_.segments.size(); ++id) {
            if (task_of_[id] == kNone) continue;
            add_waiters(static_cast<int32_t>(id));
        }
        stage_later_writes();
        take_turns(script_);
        return std::move(script_);
    }

private:
    int32_t src(const Segment& segment) const { return rows_.src[segment.row]; }
    int32_t dst(const Segment& segment) const { return rows_.dst[segment.row]; }

    // Finds the segments that may be pushed: every wait for their place ends before they can start.
    void find_pushes() {
        size_t count = program_.segments.size();
        std::vector<int32_t> implied(count, 0);
        for (size_t id = 0; id < count; ++id) {
            const Segment& before = program_.segments[id];
            for (int32_t edge = before.when_left; edge != kNone; edge = program_.edges[edge].next) {
                uint32_t target = program_.edges[edge].target;
                if ((target & 1) == 1 && comes_back(before, program_.segments[target >> 1])) ++implied[target >> 1];
            }
        }
        pushed_.assign(count, 0);
        std::map<int32_t, int64_t> sent;
        int64_t total = 0;
        for (size_t id = 0; id < count; ++id) {
            const Segment& segment = program_.segments[id];
            if (segment.apply_needs == 0 || implied[id] != segment.apply_needs || rows_.op[segment.row] == 1) continue;
            pushed_[id] = 1;
            total += segment.bytes;
            sent[src(segment)] += segment.bytes;
        }
        bool even = std::ranges::all_of(sent, [&](const auto& one) {
            return one.second <= total / static_cast<int64_t>(sent.size()) * 5 / 4 + kUneven;
        });
        if (!even || static_cast<int32_t>(sent.size()) < layout_.ranks) std::ranges::fill(pushed_, 0);
    }

    // Whether `after` carries back what `before` brought: it starts when `before` was applied at its sender.
    bool comes_back(const Segment& before, const Segment& after) const {
        auto alone = [&](const Segment& one) {
            auto next = static_cast<size_t>(one.row) + 1;
            return next == rows_.size() || !rows_.continues(next);
        };
        return src(before) == dst(after) && dst(before) == src(after) && alone(before) && alone(after) &&
               rows_.chunk[before.row] == rows_.chunk[after.row] && rows_.step[before.row] < rows_.step[after.row] &&
               rows_.to_slot(before.row) == rows_.from_slot(after.row);
    }

    // Gives a task to each segment that begins or ends here.
    void number() {
        task_of_.assign(program_.segments.size(), kNone);
        Queues sends(script_.sends), receives(script_.receives);
        int32_t message = kNone;
        uint32_t index = 0;  // of the segment in its message
        int64_t within = 0;  // elements of its message before this segment
        for (size_t id = 0; id < program_.segments.size(); ++id) {
            const Segment& segment = program_.segments[id];
            if (segment.row != message) {
                message = segment.row;
                index = 0;
                within = 0;
            }
            bool sends_it = src(segment) == rank_, receives_it = dst(segment) == rank_;
            if (sends_it || receives_it) {
                auto task = static_cast<int32_t>(script_.tasks.size());
                task_of_[id] = task;
                int32_t peer = sends_it ? dst(segment) : src(segment);
                script_.tasks.push_back({peer, segment.row, static_cast<uint32_t>(script_.parts.size()), 0,
                                         segment.bytes, sends_it ? segment.start_needs : 0,
                                         receives_it ? segment.apply_needs : 0, kNone, kNone, -1, sends_it,
                                         rows_.op[segment.row] == 1, pushed_[id] != 0});
                script_.tasks[task].turn = index;
                add_parts(segment, within);
                if (sends_it && receives_it) {
                    stage(script_.tasks[task]);
                    script_.local.push_back(task);
                } else {
                    Queues& queues = sends_it ? sends : receives;
                    queues.add(script_.tasks, connection(segment, peer), connections_.count[peer]);
                }
            }
            ++index;
            within += segment.bytes;
        }
        // Ranks between which the schedule sends something meet also where that is empty: one of them may be in another
        // operation, where it is not.
        for (size_t row = 0; row < rows_.size(); ++row) {
            if ((rows_.src[row] == rank_) == (rows_.dst[row] == rank_)) continue;
            sends.find(rows_.src[row] == rank_ ? rows_.dst[row] : rows_.src[row], 0);
        }
    }

    int32_t connection(const Segment& segment, int32_t peer) const {
        int32_t route = rows_.route[segment.row];
        if (route >= 0) return connections_.of_route[route];
        return (src(segment) == rank_ ? connections_.out : connections_.in)[peer];
    }

    void add_parts(const Segment& segment, int64_t within) {
        Task& task = script_.tasks.back();
        int64_t left = segment.bytes;
        for (size_t row = segment.row; left > 0; ++row) {
            int32_t chunk = rows_.chunk[row];
            int64_t size = layout_.start[chunk + 1] - layout_.start[chunk];
            if (within >= size) {
                within -= size;
                continue;
            }
            int64_t elements = std::min(size - within, left);
            auto from = places_.source(row);
            auto to = places_.target(row);
            auto base = dst(segment) == rank_ ? places_.base(row) : from;
            if (task.sends) std::swap(from, to);
            add_part(task, {to.offset + within, from.offset + within, elements, to.region, from.region, base.region,
                            base.offset + within});
            left -= elements;
            within = 0;
        }
    }

    void add_part(Task& task, const Part& part) {
        if (task.peer != rank_ && (task.sends || task.pushed))
            script_.exposed |= uint64_t{1} << static_cast<int>(part.here_in);
        if (task.parts > 0) {
            Part& last = script_.parts.back();
            if (last.here_in == part.here_in && last.there_in == part.there_in && last.base_in == part.base_in &&
                last.here + last.elements == part.here && last.there + last.elements == part.there &&
                last.base + last.elements == part.base) {
                last.elements += part.elements;
                return;
            }
        }
        script_.parts.push_back(part);
        ++task.parts;
    }

    void add_waiters(int32_t id) {
        const Segment& segment = program_.segments[id];
        if (dst(segment) == rank_) {
            for (int32_t edge = segment.when_applied; edge != kNone; edge = program_.edges[edge].next) {
                add_waiter(script_.tasks[task_of_[id]].applied, program_.edges[edge].target);
            }
        }
        if (src(segment) == rank_) {
            for (int32_t edge = segment.when_left; edge != kNone; edge = program_.edges[edge].next) {
                uint32_t target = program_.edges[edge].target;
                add_waiter(script_.tasks[task_of_[id]].left, target);
                Task& task = script_.tasks[task_of_[target >> 1]];
                if (rows_.step[task.row] == rows_.step[segment.row]) stage(task);
            }
        }
    }

    // A write that waits for a staged one of the same step, since both add to one place, waits for the same reads: it is
    // staged as well. Else two ranks that read each other's place could wait for each other's fetch.
    void stage_later_writes() {
        for (size_t id = 0; id < program_.segments.size(); ++id) {
            const Segment& segment = program_.segments[id];
            if (dst(segment) != rank_ || script_.tasks[task_of_[id]].stage < 0) continue;
            for (int32_t edge = segment.when_applied; edge != kNone; edge = program_.edges[edge].next) {
                uint32_t target = program_.edges[edge].target;
                bool writes = (target & 1) == 1;
                Task& task = script_.tasks[task_of_[target >> 1]];
                if (writes && rows_.step[task.row] == rows_.step[segment.row]) stage(task);
            }
        }
    }

    void stage(Task& task) {
        if (task.stage >= 0) return;
        task.stage = script_.stage_elements;
        script_.stage_elements += task.elements;
    }

    void add_waiter(int32_t& head, uint32_t target) {
        script_.waiters.push_back({task_of_[target >> 1], head, (target & 1) == 1});
        head = static_cast<int32_t>(script_.waiters.size()) - 1;
    }

    static constexpr int64_t kUneven = 1024;  // elements that do not make a difference

    const Rows& rows_;
    const Layout& layout_;
    Places places_;
    const ConnectionChoice& connections_;
    int32_t rank_;
    Program program_;
    std::vector<uint8_t> pushed_;
    std::vector<int32_t> task_of_;
    Script script_;
};

}  // namespace

// Notes how far the parts of a script reach into the regions of its rank, and into those of its peers.
static Script measured(Script script, int32_t rank) {
    for (const Task& task : script.tasks) {
        bool local = task.peer == rank;
        for (uint32_t p = task.first_part; p < task.first_part + task.parts; ++p) {
            const Part& part = script.parts[p];
            script.reach.extend(part.here_in, part.here + part.elements);
            script.reach.extend(part.base_in, part.base + part.elements);
            // What the peer fetches goes where the peer says.
            if (!local && task.sends && !task.pushed) continue;
            (local ? script.reach : script.peer_reach[task.peer]).extend(part.there_in, part.there + part.elements);
        }
    }
    return script;
}

Script write_script(const Rows& rows, const Cut& cut, const Layout& layout, const ConnectionChoice& connections,
                    int32_t rank) {
    return measured(Writer(rows, cut, layout, connections, rank).write(), rank);
}

Script write_exchange(std::span<const PeerExchange> exchanges, int64_t segment, std::span<const int32_t> connections) {
    Script script;
    Queues sent(script.sends), received(script.receives);
    auto add = [&](const PeerExchange& exchange, bool sends) {
        int32_t peer = exchange.peer;
        int64_t elements = sends ? exchange.sends : exchange.receives;
        if (elements < 0) return;
        Queues& queues = sends ? sent : received;
        queues.find(peer, 0);
        uint32_t index = 0;
        for (int64_t done = 0; done < elements; done += segment) {
            int64_t some = std::min(segment, elements - done);
            script.tasks.push_back({peer, kNone, static_cast<uint32_t>(script.parts.size()), 1, some, 0, 0, kNone,
                                    kNone, -1, sends, false, false});
            script.tasks.back().turn = index++;
            queues.add(script.tasks, ConnectionChoice::kInTurn, connections[peer]);
            script.parts.push_back({exchange.here + done, exchange.there + done, some,
                                    sends ? Region::buffer : Region::output, sends ? Region::output : Region::buffer,
                                    sends ? Region::buffer : Region::output, exchange.here + done});
        }
        if (sends) script.exposed |= uint64_t{1} << static_cast<int>(Region::buffer);
    };
    for (const PeerExchange& exchange : exchanges) {
        add(exchange, true);
        add(exchange, false);
        script.between[exchange.peer] = exchange.code;
    }
    take_turns(script);
    return measured(std::move(script), kNone);
}

}  // namespace weft::runtime
