// Servers that take one thing at a time, each with those that wait for it: what links and resources have in common.
// Python half: src/weft/simulation/simulator.py and workflow.py.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "simulation/dependency_tracker.hpp"

namespace weft {

template <typename Waiting>  // `Waiting::Later` compares two of them: the second goes first
class ServerQueues {
public:
    explicit ServerQueues(size_t servers) : servers_(servers) {}

    void offer(int32_t server, const Waiting& next) {
        auto& waiting = servers_[server].waiting;
        waiting.push_back(next);
        std::push_heap(waiting.begin(), waiting.end(), typename Waiting::Later());
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
            if (server.free_at <= now) {
                std::pop_heap(server.waiting.begin(), server.waiting.end(), typename Waiting::Later());
                Waiting next = server.waiting.back();
                server.waiting.pop_back();
                serve(number, next);
            }
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
        std::vector<Waiting> waiting;
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
