// Python half: src/weft/verification/contention.py.
#include "verification/contention.hpp"

#include <algorithm>

#include "common/work_limit.hpp"

namespace weft::verification {
namespace {

bool is_worse(const SharedLink& a, const SharedLink& b) {
    if (a.flows != b.flows) return a.flows > b.flows;
    return a.step != b.step ? a.step < b.step : a.link < b.link;
}

class Counter {
public:
    Counter(const FlowTable& table, size_t keep) : table_(table), keep_(keep) {
        result_.link_flows.resize(table.link_count);
        result_.link_weight.resize(table.link_count);
        size_t steps = table.step.empty() ? 0 : static_cast<size_t>(table.step.back()) + 1;
        result_.step_flows.resize(steps);
        result_.step_weight.resize(steps);
        flows_.resize(table.link_count);
        weight_.resize(table.link_count);
        seen_.assign(table.offsets.size() - 1, -1);
    }

    Contention count() {
        for (size_t row = 0; row < table_.step.size(); ++row) {
            if (row && table_.step[row] != table_.step[row - 1]) close_step(table_.step[row - 1]);
            take(row);
        }
        if (!table_.step.empty()) close_step(table_.step.back());
        trim();
        return std::move(result_);
    }

private:
    void take(size_t row) {
        double weight = table_.weight[table_.chunk[row]];
        if (weight == 0) return;
        int32_t connection = table_.connection[row];
        work_limit_.spend(static_cast<size_t>(table_.offsets[connection + 1] - table_.offsets[connection]) + 1);
        bool starts_flow = seen_[connection] != table_.step[row];
        seen_[connection] = table_.step[row];
        for (int64_t i = table_.offsets[connection]; i < table_.offsets[connection + 1]; ++i) {
            int32_t link = table_.links[i];
            if (starts_flow && flows_[link]++ == 0) touched_.push_back(link);
            weight_[link] += weight;
        }
    }

    void close_step(int32_t step) {
        for (int32_t link : touched_) {
            result_.link_flows[link] = std::max(result_.link_flows[link], flows_[link]);
            result_.step_flows[step] = std::max(result_.step_flows[step], flows_[link]);
            result_.link_weight[link] += weight_[link];
            result_.step_weight[step] = std::max(result_.step_weight[step], weight_[link]);
            if (flows_[link] > 1) result_.worst.push_back({step, link, flows_[link]});
            flows_[link] = 0;
            weight_[link] = 0;
        }
        touched_.clear();
        if (result_.worst.size() > 4096 + 2 * keep_) trim();
    }

    void trim() {
        auto& worst = result_.worst;
        size_t kept = std::min(keep_, worst.size());
        std::partial_sort(worst.begin(), worst.begin() + static_cast<int64_t>(kept), worst.end(), is_worse);
        worst.resize(kept);
    }

    const FlowTable& table_;
    size_t keep_;
    Contention result_;
    std::vector<int32_t> flows_;
    std::vector<double> weight_;
    std::vector<int32_t> touched_;  // links in use in this step
    std::vector<int32_t> seen_;     // last step in which a connection was used
    WorkLimit work_limit_;
};

}  // namespace

Contention count_flows(const FlowTable& table, size_t keep) { return Counter(table, keep).count(); }

}  // namespace weft::verification
