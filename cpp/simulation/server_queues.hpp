// Servers that take one thing at a time, each with those that wait for it: what links and resources have in common.
// Python half: src/weft/simulation/simulator.py and workflow.py.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "simulation/dependency_tracker.hpp"

namespace weft {

// The one that goes first is on top. Four children to each entry: a crowded link has hundreds that wait, and a pop of
// so many costs what it has to fetch from memory.
template <typename Waiting>  // `Waiting::Later` compares two of them: the second goes first
class WaitingHeap {
public:
    bool empty() const { return entries_.empty(); }

    void push(const Waiting& entry) {
        size_t at = entries_.size();
        entries_.push_back(entry);
        for (; at > 0 && later_(entries_[(at - 1) / 4], entry); at = (at - 1) / 4)
            entries_[at] = entries_[(at - 1) / 4];
        entries_[at] = entry;
    }

    Waiting pop() {
        Waiting top = entries_.front(), last = entries_.back();
        entries_.pop_back();
        size_t count = entries_.size(), at = 0;
        for (size_t child = 1; child < count; child = 4 * at + 1) {
            size_t end = std::min(child + 4, count);
            for (size_t other = child + 1; other < end; ++other) {
                if (later_(entries_[child], entries_[other])) child = other;
            }
            if (!later_(last, entries_[child])) break;
            entries_[at] = entries_[child];
            at = child;
        }
        if (count > 0) entries_[at] = last;
        return top;
    }

private:
    std::vector<Waiting> entries_;
    [[no_unique_address]] typename Waiting::Later later_;
};

template <typename Waiting>
class ServerQueues {
public:
    explicit ServerQueues(size_t servers) : servers_(servers) {}

    void offer(int32_t server, const Waiting& next) {
        servers_[server].waiting.push(next);
        touch(server);
    }

    void is_free(int32_t server) {
        servers_[server].wakes = false;
        touch(server);
    }

    // Lets each free server that something happened to `serve` its next, and asks to `wake` it when it is free again.
    template <typename Serve, typename Wake>
    void start(int64_t now, Serve serve, Wake wake) {
        for (int32_t number : touched_) {
            Server& server = servers_[number];
            server.touched = false;
            if (server.waiting.empty()) continue;
            if (server.free_at <= now) serve(number, server.waiting.pop());
            if (!server.waiting.empty() && !server.wakes) {
                server.wakes = true;
                wake(server.free_at, number);
            }
        }
        touched_.clear();
    }

    void occupy(int32_t server, int64_t until) { servers_[server].free_at = until; }

    int64_t duration(int32_t number, int64_t bytes, int64_t bytes_per_s) {
        Server& server = servers_[number];
        if (server.bytes != bytes) {
            server.bytes = bytes;
            server.duration = duration_ps(bytes, bytes_per_s);
        }
        return server.duration;
    }

private:
    struct Server {
        int64_t free_at = 0;
        int64_t bytes = -1, duration = 0;  // asked for last: most is alike
        bool touched = false, wakes = false;
        WaitingHeap<Waiting> waiting;
    };

    void touch(int32_t server) {
        if (servers_[server].touched) return;
        servers_[server].touched = true;
        touched_.push_back(server);
    }

    std::vector<Server> servers_;
    std::vector<int32_t> touched_;
};

}  // namespace weft
