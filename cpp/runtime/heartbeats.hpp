// Heartbeats between machines, so that every rank names the same lost or silent rank.
//
// Every rank has one connection to rank 0, used for nothing else. Both ends beat on it, from a thread of their own, so
// that neither Python nor a long sum delays them. Rank 0 sees which rank hangs up or falls silent, hears what the others have
// seen on their machines, and tells all ranks; a rank that no longer hears rank 0 declares rank 0 lost. The same
// connection carries the news that a connection was cut, which rank a rank waits for, and why it gave up.
//
// Python half: src/weft/runtime/transport/heartbeats.py, which says after how long a silence a rank is suspected, and
// after how long it is declared lost.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <thread>
#include <vector>

#include "runtime/shared_memory.hpp"
#include "runtime/status.hpp"

namespace weft::runtime {

// Between two heartbeats of a rank, in shared memory as well as on its connection to rank 0.
constexpr int64_t kHeartbeatMs = 100;

class Heartbeats {
public:
    // `sockets[r]` is a connected, authenticated socket to rank r, or -1; they stay the caller's. Losses go to `host`.
    // A rank that is silent for `suspect_after_ms` is suspected, and declared lost after `silent_after_ms`.
    Heartbeats(std::shared_ptr<Host> host, const std::vector<int32_t>& sockets, int64_t suspect_after_ms,
               int64_t silent_after_ms);
    ~Heartbeats();
    Heartbeats(const Heartbeats&) = delete;
    Heartbeats& operator=(const Heartbeats&) = delete;

    // Tell the others that this rank leaves on purpose, and stop.
    void close();

private:
    enum class Kind : uint32_t { beat = 1, left, lost, frozen, cut, silent, heard, report };
    struct Message {
        Kind kind;
        int32_t rank = 0;
        Host::Cut cut{};
        uint32_t spare = 0;  // so that no byte of it is padding
        Host::RankReport report{};
        uint32_t spare_too = 0;
        uint32_t checksum = 0;  // one that does not fit was changed on the way: it is dropped, and the next one counts

        uint32_t compute() const;
    };
    struct Connection {
        int socket;
        int32_t rank;
        int64_t heard_ms;
        bool left = false;
        Message message{};  // the one that is coming in
        size_t have = 0;  // bytes of it
    };
    void run();
    bool receive(Connection& connection);  // false when nothing more will come
    void handle(Connection& connection);
    void take_report(int32_t from, const Host::RankReport& report);
    void send_to_all(Message message);
    void send_losses();
    void send_suspects();
    void send_cut();
    void send_reports();

    std::shared_ptr<Host> host_;
    int64_t suspect_after_ms_, silent_after_ms_;
    std::vector<Connection> connections_;
    std::vector<uint8_t> losses_sent_, suspected_;  // by rank: whether the others were told of it
    std::vector<uint32_t> reports_sent_;  // by teller and channel: how many of its reports
    int32_t own_rank_;  // in the job
    int32_t cuts_sent_ = 0;
    std::atomic<bool> stop_ = false;
    std::thread thread_;
};

}  // namespace weft::runtime
