// Which segments may start and which are applied, and when: everything about a run except the network.
// Python half: src/weft/simulation/simulator.py.
#pragma once

#include <cstdint>
#include <deque>
#include <stdexcept>
#include <vector>

#include "common/radix_queue.hpp"
#include "simulation/simulator.hpp"

namespace weft {

enum class Kind : uint32_t { hop, arrive, apply, link_free, wake };

struct Event {
    int64_t time;
    int32_t id;  // a segment, or a link for link_free
    Kind kind : 4;
    uint32_t hop : 28;  // for Kind::hop, where it is: on its path, or in a table of at most 2^27 links of paths

    Event(int64_t when, int32_t what, Kind event, uint32_t at = 0) : time(when), id(what), kind(event), hop(at) {}
};

using EventQueue = RadixQueue<Event>;

// The longest that anything may take, 26 days: a handful of these can be added up without a wrap.
constexpr int64_t kLongestPs = int64_t{1} << 61;

// ceil(bytes * 10^12 / bytes_per_s); throws where the clock would not go so far.
inline int64_t duration_ps(int64_t bytes, int64_t bytes_per_s) {
    auto scaled = static_cast<unsigned __int128>(bytes) * 1'000'000'000'000ULL;
    if (scaled >> 64 == 0) {  // the wide division costs several times the narrow one
        auto low = static_cast<uint64_t>(scaled), rate = static_cast<uint64_t>(bytes_per_s);
        uint64_t narrow = low / rate + (low % rate != 0);
        if (narrow > kLongestPs) throw std::overflow_error("simulated time");
        return static_cast<int64_t>(narrow);
    }
    auto rate = static_cast<unsigned __int128>(bytes_per_s);
    auto wide = (scaled + rate - 1) / rate;
    if (wide > kLongestPs) throw std::overflow_error("simulated time");
    return static_cast<int64_t>(wide);
}

class DependencyTracker {
public:
    DependencyTracker(Program& program, const Rows& rows, int32_t ranks, EventQueue& queue);

    // Segments that became ready for their first link since the last call; valid until the next one.
    const std::vector<int32_t>& take_ready();

    void started(int32_t segment, int64_t now) { state_[segment].start_ps = now; }
    // Known at `now`: the segment's last byte is out of its source at `when`.
    void leaves(int32_t segment, int64_t when, int64_t now);
    void arrived(int32_t segment, int64_t now);
    void handle(const Event& event);

    // The segment gets a link at `now` and not before, because `holder` had it.
    void blame_link(int32_t segment, int32_t holder, int64_t now) {
        if (latest_wait_.empty()) latest_wait_.resize(segments(), kNone);
        waits_.push_back({now, holder, latest_wait_[segment]});
        latest_wait_[segment] = static_cast<int32_t>(waits_.size()) - 1;
    }

    int32_t rank_from(int32_t segment) const { return rows_.src[program_.segments[segment].row]; }
    int32_t rank_to(int32_t segment) const { return rows_.dst[program_.segments[segment].row]; }
    Segment& segment(int32_t id) { return program_.segments[id]; }
    size_t segments() const { return program_.segments.size(); }
    uint64_t key(int32_t segment) const { return program_.key(segment); }
    bool whole() const { return program_.index.empty(); }  // each message is one segment

    void finish(Outcome& outcome);

private:
    // What the critical path is made of: the segments that released this one and that held it up on its way and at its end.
    struct State {
        int64_t start_ps = -1;
        int64_t applied_ps = -1;  // until then the instant it arrived, or -1
        int64_t apply_after = 0;  // readers of the place have left by then
        int32_t start_cause = kNone;
        int32_t apply_cause = kNone;
    };
    struct Wait {
        int64_t until;
        int32_t holder;
        int32_t before;  // the same segment's wait before this one
    };

    void need_start(int32_t segment, int32_t from);
    void try_apply(int32_t segment, int64_t now);
    void apply(int32_t segment, int64_t now);
    void apply_one(int32_t segment, int64_t now);
    void met(int32_t segment, int32_t by, int64_t when, int64_t now);
    void trace_back(int32_t last, Outcome& outcome);

    Program& program_;
    const Rows& rows_;
    EventQueue& queue_;
    Bulk<State> state_;
    Bulk<int32_t>
        latest_wait_;  // of each segment, for a link; empty before the first; trace_back drops those it is past
    std::deque<Wait> waits_;  // grows without copies: on a busy network it is larger than all else
    std::vector<int32_t> ready_, handed_;
    std::vector<int32_t> due_;
    bool applying_ = false;
    std::vector<int64_t> rank_finish_;
    int32_t last_applied_ = kNone;
};

}  // namespace weft
