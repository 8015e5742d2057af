// A matching of applicants to few ports: as many as possible get one, and an earlier applicant never loses its port.
// Python half: src/weft/algorithms/multitree/growth.py.
#pragma once

#include <cstdint>
#include <numeric>
#include <span>
#include <vector>

namespace weft {

class PortMatching {
public:
    void clear(std::span<const int32_t> capacity) {
        capacity_ = capacity;
        room_ = std::accumulate(capacity.begin(), capacity.end(), int64_t{0});
        holders_.resize(capacity.size());
        for (auto& holders : holders_) holders.clear();
        seen_.assign(capacity.size(), 0);
        epoch_ = 0;
        wanted_.clear();
        start_.assign(1, 0);
    }

    bool full() const { return room_ == 0; }

    // A newcomer, known from now on by the number of earlier ones that were taken, wants one of these ports, the
    // first ones rather. Others may have to change theirs. False if there is none for it.
    bool offer(std::span<const int32_t> ports) {
        wanted_.insert(wanted_.end(), ports.begin(), ports.end());
        start_.push_back(wanted_.size());
        ++epoch_;
        if (place(static_cast<int32_t>(start_.size()) - 2)) {
            --room_;
            return true;
        }
        start_.pop_back();
        wanted_.resize(start_.back());
        return false;
    }

    std::span<const int32_t> holders(size_t port) const { return holders_[port]; }

private:
    // An augmenting path, as Kuhn has it; no deeper than there are ports.
    bool place(int32_t who) {
        for (size_t i = start_[who]; i < start_[who + 1]; ++i) {
            int32_t port = wanted_[i];
            if (seen_[port] == epoch_) continue;
            seen_[port] = epoch_;
            if (static_cast<int32_t>(holders_[port].size()) < capacity_[port]) {
                holders_[port].push_back(who);
                return true;
            }
            for (int32_t& holder : holders_[port]) {
                if (!place(holder)) continue;
                holder = who;
                return true;
            }
        }
        return false;
    }

    std::span<const int32_t> capacity_;
    int64_t room_ = 0;
    std::vector<std::vector<int32_t>> holders_;
    std::vector<int32_t> seen_, wanted_;
    std::vector<size_t> start_;
    int32_t epoch_ = 0;
};

}  // namespace weft
