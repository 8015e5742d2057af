// Runs one rank's script over its links.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "host.hpp"
#include "link.hpp"
#include "script.hpp"

namespace weft::runtime {

// `given_up`: the others no longer wait for this rank, by which `rank` gave up first. `cut`: the connection between
// `rank` and `waited_for` carries nothing any more; both live.
enum class Status : uint8_t { done, lost, frozen, left, differs, timed_out, interrupted, given_up, cut };

struct Ending {
    Status status = Status::done;
    int32_t rank = -1;  // whose fault
    int32_t row = -1;   // a transfer that was waited for
    int32_t waited_for = -1;  // the rank at the other end of it
};

class Executor {
public:
    // `local[r]` is the number on this machine of rank r, or -1; `sockets[r]` are connected sockets to it: if there are
    // several, segments go over them in turn.
    // Communicators that share a host each have a channel of their own; `job[r]` is the rank in the job of rank r.
    Executor(std::shared_ptr<Host> host, int channel, int32_t rank, std::vector<int32_t> job, std::vector<int32_t> local,
             std::vector<std::vector<int32_t>> sockets, const std::vector<uint8_t>& can_read);

    Executor(const Executor&) = delete;
    Executor& operator=(const Executor&) = delete;

    Ending run(const Operation& operation);
    void close();  // leave on purpose
    uint64_t sequence() const { return sequence_; }
    const Host& host() const { return *host_; }

private:
    class Run;

    // The first of its ranks that died or froze.
    struct Loss {
        int32_t rank = -1;
        bool frozen = false;
    };
    Loss loss() const;
    // The cut that everybody gives up for, if there is one.
    Ending cut() const;
    Channel& mine() const { return host_->mine().channel[channel_]; }
    void give_up(Status status, int32_t culprit);
    // What a peer's giving up means for this rank; done if it has not.
    Ending heard_from(int32_t peer) const;
    // The rank that all wait for in the end, as far as this machine can tell, if `peer` is waited for here.
    int32_t follow(int32_t peer) const;
    void say_farewell(Status status);

    std::shared_ptr<Host> host_;
    int channel_;
    int32_t rank_;
    std::vector<int32_t> job_, local_;
    std::vector<std::vector<int32_t>> sockets_;
    std::vector<std::vector<std::unique_ptr<Link>>> links_;  // by rank and stream
    uint64_t sequence_ = 0;
    Ending broken_;  // the first failure; after it nothing works any more
};

}  // namespace weft::runtime
