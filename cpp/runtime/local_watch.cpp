// The watch of a rank over the other ranks of its machine, and what is known of all ranks of the job.
// Python half: src/weft/runtime/transport/heartbeats.py.
#include <poll.h>

#include <algorithm>
#include <stdexcept>
#include <utility>

#include "runtime/heartbeats.hpp"
#include "runtime/shared_memory.hpp"
#include "runtime/timing.hpp"

namespace weft::runtime {

void Host::start_watch(int64_t suspect_after_ms, int64_t frozen_after_ms, std::vector<int32_t> rank_of,
                       int32_t job_ranks) {
    if (rank_of.size() != members_.size() || job_ranks < ranks_) throw std::invalid_argument("rank_of");
    for (int32_t rank : rank_of) {
        if (rank < 0 || rank >= job_ranks) throw std::invalid_argument("rank_of");
    }
    rank_of_ = std::move(rank_of);
    lost_ = std::vector<std::atomic<int64_t>>(static_cast<size_t>(job_ranks));
    silent_since_ = std::vector<std::atomic<int64_t>>(static_cast<size_t>(job_ranks));
    reports_ = std::vector<CountedReport>(static_cast<size_t>(job_ranks) * kChannels);
    watcher_ = std::thread([=, this] { watch(suspect_after_ms, frozen_after_ms); });
}

// Beats, and listens to the others' beats; a thread of its own, so that neither Python nor a long sum delays it.
void Host::watch(int64_t suspect_after_ms, int64_t frozen_after_ms) {
    std::vector<pollfd> polled;
    std::vector<int> whose;
    for (int rank = 0; rank < ranks_; ++rank) {
        if (!members_[rank].pidfd) continue;
        polled.push_back({members_[rank].pidfd.get(), POLLIN, 0});
        whose.push_back(rank);
    }
    int64_t last = now_ms();
    while (!stop_.load()) {
        mine().heartbeat.fetch_add(1, std::memory_order_relaxed);
        int woken = poll(polled.data(), polled.size(), kHeartbeatMs);
        int64_t now = now_ms();
        for (size_t i = 0; i < polled.size() && woken > 0; ++i) {
            if (polled[i].revents == 0) continue;
            if (board(whose[i]).closed.load(std::memory_order_acquire) == 0) declare(rank_of_[whose[i]], false);
            polled[i].fd = -1;  // a dead process stays readable for ever
        }
        // If this process itself was held up, the silence of the others means nothing.
        bool held_up = now - last > frozen_after_ms / 2, attentive = now - last < suspect_after_ms / 2;
        last = now;
        for (int rank : whose) {
            Member& member = members_[rank];
            uint64_t beat = board(rank).heartbeat.load(std::memory_order_relaxed);
            bool left = board(rank).closed.load(std::memory_order_acquire) != 0;
            if (beat != member.beat || held_up || left) {
                member.beat = beat;
                member.heard_ms = now;
            }
            int64_t silent = now - member.heard_ms;
            if (attentive) suspect(rank_of_[rank], silent > suspect_after_ms ? silent : 0);
            if (silent > frozen_after_ms) declare(rank_of_[rank], true);
        }
    }
}

void Host::suspect(int32_t rank, int64_t silent_ms) {
    if (silent_ms == 0) {
        silent_since_[rank].store(0, std::memory_order_relaxed);
    } else if (silent_since_[rank].load(std::memory_order_relaxed) == 0) {
        silent_since_[rank].store(now_ms() - silent_ms, std::memory_order_relaxed);
        ring_doorbell(rank_);
    }
}

int64_t Host::silent_ms(int32_t rank) const {
    int64_t since = silent_since_[rank].load(std::memory_order_relaxed);
    return since == 0 ? 0 : std::max<int64_t>(1, now_ms() - since);
}

void Host::declare(int32_t rank, bool frozen) {
    int64_t none = 0;
    if (lost_[rank].compare_exchange_strong(none, now_ms() * 2 + (frozen ? 1 : 0))) ring_doorbell(rank_);
}

void Host::find_dead() {
    for (int rank = 0; rank < ranks_; ++rank) {
        if (!members_[rank].pidfd) continue;
        pollfd process{members_[rank].pidfd.get(), POLLIN, 0};
        bool ended = poll(&process, 1, 0) > 0;
        if (ended && board(rank).closed.load(std::memory_order_acquire) == 0) declare(rank_of_[rank], false);
    }
}

Host::Cut Host::cut() const {
    std::lock_guard lock(cut_mutex_);
    return cut_;
}

void Host::declare_cut(int32_t one, int32_t other, int32_t connection, bool corrupt) {
    Cut found = cut();
    found.lower = std::min(one, other);
    found.higher = std::max(one, other);
    found.connection = connection;
    found.corrupt = corrupt ? 1 : 0;
    record_cut(found);
}

void Host::record_cut(const Cut& cut) {
    std::lock_guard lock(cut_mutex_);
    if (cut.times_mended == cut_.times_mended && !cut_.seen()) cut_ = cut;
}

void Host::mend() {
    std::lock_guard lock(cut_mutex_);
    cut_ = {.times_mended = cut_.times_mended + 1};
}

void Host::record_report(const RankReport& report) {
    std::lock_guard lock(reports_mutex_);
    CountedReport& told =
        reports_.at(static_cast<size_t>(report.teller) * kChannels + static_cast<size_t>(report.channel));
    told.report = report;
    ++told.times;
}

Host::RankReport Host::report(int32_t teller, int channel) const {
    std::lock_guard lock(reports_mutex_);
    return reports_.at(static_cast<size_t>(teller) * kChannels + static_cast<size_t>(channel)).report;
}

std::vector<Host::RankReport> Host::new_reports(std::vector<uint32_t>& seen) const {
    std::lock_guard lock(reports_mutex_);
    std::vector<RankReport> fresh;
    seen.resize(reports_.size());
    for (size_t i = 0; i < reports_.size(); ++i) {
        if (seen[i] == reports_[i].times) continue;
        seen[i] = reports_[i].times;
        fresh.push_back(reports_[i].report);
    }
    return fresh;
}

Host::Loss Host::loss(int32_t rank) const {
    int64_t lost = lost_[rank].load(std::memory_order_acquire);
    return {lost / 2, lost % 2 == 1};
}

}  // namespace weft::runtime
