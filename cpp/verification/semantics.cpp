// A symbolic replay, chunk by chunk, of what each place holds; for chunks of which disjoint_sums.hpp cannot prove in
// less time that they come out right.
//
// The value of a place is how often each contribution is in it: not at all, once, or more often. That is two
// bits per contributor, kept in two bit planes, so that a copy or a sum handles 64 contributors at a time. A
// place that was never written is undefined, and so is a copy or a sum of it; a later copy makes it defined.
//
// The replay proper is written once, over a kind of values: `Counts` decides, `Trace` follows a single
// contributor through a chunk found wrong and remembers which transfer spoilt it.
//
// Python half: src/weft/verification/semantics.py.
#include "verification/semantics.hpp"

#include <algorithm>
#include <cstring>

#include "common/work_limit.hpp"
#include "verification/disjoint_sums.hpp"

namespace weft::verification {
namespace {

struct Hazard {
    uint32_t place;  // number within the chunk
    int64_t first;
    int64_t second;
};

// The rows of one chunk with their places numbered 0, 1, ..
class ChunkRows {
public:
    explicit ChunkRows(const Transfers& table) : table_(table) {}

    void load(std::span<const uint32_t> rows) {
        rows_ = rows;
        places_.clear(std::min<size_t>(2 * rows.size(), 4096));
        read_.resize(rows.size());
        write_.resize(rows.size());
        for (size_t i = 0; i < rows.size(); ++i) {
            read_[i] = places_.number(table_.read_place(rows[i]));
            write_[i] = places_.number(table_.write_place(rows[i]));
        }
    }

    size_t places() const { return places_.size(); }
    int32_t rank(size_t number) const { return static_cast<int32_t>(places_.keys()[number] % table_.ranks); }
    int32_t slot(size_t number) const { return static_cast<int32_t>(places_.keys()[number] / table_.ranks); }
    // Number of a rank's buffer, or -1 if no transfer of the chunk touches it.
    int64_t buffer(int32_t rank) const { return places_.find(table_.place(rank, 0)); }

    // Values answer: stash(n) keeps the present value of place n and returns its number; write(to, from, op, row).
    template <typename Values>
    std::optional<Hazard> replay(Values& values) {
        written_.assign(places_.size(), kNever);
        stashed_.assign(places_.size(), {0, kNever});
        for (size_t begin = 0; begin < rows_.size();) {
            size_t end = begin + 1;
            int32_t step = table_.step[rows_[begin]];
            while (end < rows_.size() && table_.step[rows_[end]] == step) ++end;
            if (end == begin + 1) {
                values.write(write_[begin], read_[begin], table_.op[rows_[begin]], rows_[begin]);
            } else if (auto hazard = replay_step(begin, end, values)) {
                return hazard;
            }
            begin = end;
        }
        return std::nullopt;
    }

private:
    static constexpr uint32_t kNever = UINT32_MAX;
    struct Stash {
        uint32_t number;
        uint32_t group;  // first row of its step, within the chunk
    };

    template <typename Values>
    std::optional<Hazard> replay_step(size_t begin, size_t end, Values& values) {
        auto group = static_cast<uint32_t>(begin);
        for (size_t i = begin; i < end; ++i) {
            uint32_t earlier = written_[write_[i]];
            bool again = earlier != kNever && earlier >= begin;
            if (again && !(table_.op[rows_[i]] == kReduce && table_.op[rows_[earlier]] == kReduce)) {
                return Hazard{write_[i], rows_[earlier], rows_[i]};
            }
            written_[write_[i]] = static_cast<uint32_t>(i);
        }
        values.forget_stashes();
        for (size_t i = begin; i < end; ++i) {
            uint32_t place = read_[i];
            bool changes = written_[place] != kNever && written_[place] >= begin;
            if (changes && stashed_[place].group != group) stashed_[place] = {values.stash(place), group};
        }
        for (size_t i = begin; i < end; ++i) {
            const Stash& stash = stashed_[read_[i]];
            uint32_t from = stash.group == group ? stash.number : read_[i];
            values.write(write_[i], from, table_.op[rows_[i]], rows_[i]);
        }
        return std::nullopt;
    }

    const Transfers& table_;
    std::span<const uint32_t> rows_;
    Numbering places_;
    std::vector<uint32_t> read_, write_;
    std::vector<uint32_t> written_;  // last row (within the chunk) of a step with several that wrote the place
    std::vector<Stash> stashed_;
};

// How often each contributor of one block is in each place.
class Counts {
public:
    // Contributors first .. first + width of the chunk; `source` as in the table.
    void start(const ChunkRows& chunk, int32_t source, int32_t first, int32_t width) {
        places_ = chunk.places();
        words_ = (static_cast<size_t>(width) + 63) / 64;
        expected_.assign(words_, ~uint64_t{0});
        if (width % 64) expected_.back() = (uint64_t{1} << (width % 64)) - 1;
        once_.assign(places_ * words_, 0);
        undefined_.assign(places_, 0);
        has_more_.assign(places_, 0);
        more_at_.assign(places_, kNone);
        more_.clear();
        for (size_t n = 0; n < places_; ++n) {
            int32_t rank = chunk.rank(n);
            bool holds = chunk.slot(n) == 0 && (source == kEvery || source == rank);
            undefined_[n] = !holds;
            int32_t bit = (source == kEvery ? rank : 0) - first;
            if (holds && bit >= 0 && bit < width) once_[n * words_ + bit / 64] |= uint64_t{1} << (bit % 64);
        }
        stashes_ = 0;
    }

    void forget_stashes() { stashes_ = 0; }

    uint32_t stash(uint32_t place) {
        auto number = static_cast<uint32_t>(places_ + stashes_++);
        if (undefined_.size() <= number) {
            undefined_.push_back(0);
            has_more_.push_back(0);
            more_at_.push_back(kNone);
            once_.resize(once_.size() + words_);
        }
        copy(number, place);
        return number;
    }

    void write(uint32_t to, uint32_t from, uint8_t op, uint32_t) {
        if (op == kReduce) {
            add(to, from);
        } else {
            copy(to, from);
        }
    }

    bool undefined(size_t n) const { return undefined_[n]; }
    bool right(size_t n) const {
        return !undefined_[n] && !has_more_[n] && !std::memcmp(&once_[n * words_], expected_.data(), 8 * words_);
    }
    bool lacks(size_t n, int32_t bit) const { return !(once_[n * words_ + bit / 64] >> (bit % 64) & 1); }
    bool doubles(size_t n, int32_t bit) const {
        return has_more_[n] && (more_[more_at_[n] * words_ + bit / 64] >> (bit % 64) & 1);
    }

private:
    static constexpr uint32_t kNone = UINT32_MAX;

    void copy(uint32_t to, uint32_t from) {
        undefined_[to] = undefined_[from];
        std::memcpy(&once_[to * words_], &once_[from * words_], 8 * words_);
        has_more_[to] = 0;
        if (has_more_[from]) {
            make_more(to);
            std::memcpy(&more_[more_at_[to] * words_], &more_[more_at_[from] * words_], 8 * words_);
        }
    }

    void add(uint32_t to, uint32_t from) {
        undefined_[to] |= undefined_[from];
        uint64_t* sum = &once_[to * words_];
        const uint64_t* part = &once_[from * words_];
        uint64_t overlap = 0;
        for (size_t w = 0; w < words_; ++w) overlap |= sum[w] & part[w];
        if (overlap || has_more_[from]) {
            make_more(to);
            uint64_t* more = &more_[more_at_[to] * words_];
            for (size_t w = 0; w < words_; ++w) more[w] |= sum[w] & part[w];
            if (has_more_[from]) {
                const uint64_t* theirs = &more_[more_at_[from] * words_];
                for (size_t w = 0; w < words_; ++w) more[w] |= theirs[w];
            }
        }
        for (size_t w = 0; w < words_; ++w) sum[w] |= part[w];
    }

    // Right schedules never sum a contribution twice on the way, so the second plane is made on demand.
    void make_more(uint32_t n) {
        if (has_more_[n]) return;
        if (more_at_[n] == kNone) {
            more_at_[n] = static_cast<uint32_t>(more_.size() / words_);
            more_.resize(more_.size() + words_);
        }
        std::fill_n(&more_[more_at_[n] * words_], words_, 0);
        has_more_[n] = 1;
    }

    size_t places_ = 0, words_ = 1, stashes_ = 0;
    std::vector<uint64_t> expected_;
    std::vector<uint64_t> once_;  // plane of places, then of stashes
    std::vector<uint64_t> more_;
    std::vector<uint32_t> more_at_;
    std::vector<uint8_t> undefined_, has_more_;
};

// One contributor's way through a chunk, with the transfers that matter.
class Trace {
public:
    struct Value {
        uint8_t count = 0;
        bool undefined = false;
        bool unheld_sender = false;
        int64_t spoilt = -1;   // where an undefined value came in
        int64_t doubled = -1;  // where the contribution was counted again
        int64_t written = -1;
    };

    void start(const ChunkRows& chunk, int32_t source, int32_t contributor) {
        values_.assign(chunk.places(), {});
        places_ = chunk.places();
        for (size_t n = 0; n < places_; ++n) {
            int32_t rank = chunk.rank(n);
            bool holds = chunk.slot(n) == 0 && (source == kEvery || source == rank);
            values_[n].undefined = !holds;
            values_[n].count = holds && rank == contributor;
        }
    }

    void forget_stashes() { values_.resize(places_); }

    uint32_t stash(uint32_t place) {
        values_.push_back(Value(values_[place]));
        return static_cast<uint32_t>(values_.size() - 1);
    }

    void write(uint32_t to, uint32_t from, uint8_t op, uint32_t row) {
        Value value = values_[from];
        if (value.undefined && value.spoilt < 0) {
            value.spoilt = row;
            value.unheld_sender = true;
        }
        if (op == kReduce) value = sum(values_[to], value, row);
        value.written = row;
        values_[to] = value;
    }

    const Value& operator[](size_t n) const { return values_[n]; }

private:
    static Value sum(const Value& mine, const Value& theirs, uint32_t row) {
        Value value = mine.undefined && mine.spoilt >= 0 ? mine : theirs;
        value.undefined = mine.undefined || theirs.undefined;
        if (value.undefined && value.spoilt < 0) {
            value.spoilt = row;
            value.unheld_sender = false;
        }
        value.doubled = mine.doubled >= 0 ? mine.doubled : theirs.doubled;
        if (value.doubled < 0 && mine.count + theirs.count >= 2) value.doubled = row;
        value.count = static_cast<uint8_t>(std::min(2, mine.count + theirs.count));
        return value;
    }

    size_t places_ = 0;
    std::vector<Value> values_;
};

class Checker {
public:
    Checker(const Transfers& table, size_t block_bytes) : table_(table), block_bytes_(block_bytes), rows_(table) {}

    std::optional<Finding> check() {
        DisjointSums sums(table_);
        for (int32_t chunk = 0; chunk < static_cast<int32_t>(table_.chunks()); ++chunk) {
            work_limit_.spend(sums.work(chunk));
            if (sums.prove(chunk)) continue;
            if (auto finding = check_chunk(chunk)) return finding;
        }
        return std::nullopt;
    }

private:
    int32_t contributors(int32_t chunk) const { return table_.source[chunk] == kEvery ? table_.ranks : 1; }

    int32_t block_width() const {
        size_t words = block_bytes_ / 8 / std::max<size_t>(1, rows_.places());
        return static_cast<int32_t>(64 * std::clamp<size_t>(words, 1, 1 << 20));
    }

    std::optional<Finding> check_chunk(int32_t chunk) {
        if (!by_chunk_) by_chunk_.emplace(table_);
        rows_.load(by_chunk_->rows(chunk));
        int32_t all = contributors(chunk), width = block_width();
        for (int32_t first = 0; first < all; first += width) {
            int32_t here = std::min(width, all - first);
            work_limit_.spend((by_chunk_->rows(chunk).size() + rows_.places()) * (8 + here / 64));
            counts_.start(rows_, table_.source[chunk], first, here);
            if (auto hazard = rows_.replay(counts_)) return describe(chunk, *hazard);
            int32_t rank = first_wrong(chunk);
            if (rank >= 0) return explain(chunk, rank);
        }
        return std::nullopt;
    }

    int32_t first_wrong(int32_t chunk) const {
        int32_t target = table_.target[chunk];
        int32_t begin = target == kEvery ? 0 : target, end = target == kEvery ? table_.ranks : target + 1;
        for (int32_t rank = begin; rank < end; ++rank) {
            int64_t place = rows_.buffer(rank);
            // An untouched buffer holds its own contribution and nothing else.
            bool right = place < 0 ? table_.source[chunk] == rank : counts_.right(place);
            if (!right) return rank;
        }
        return -1;
    }

    Finding describe(int32_t chunk, const Hazard& hazard) const {
        Finding finding{Fault::hazard, chunk, rows_.rank(hazard.place), rows_.slot(hazard.place)};
        finding.transfer = hazard.second;
        finding.other = hazard.first;
        return finding;
    }

    Finding explain(int32_t chunk, int32_t rank) {
        Finding finding{Fault::wrong_sum, chunk, rank};
        int64_t place = rows_.buffer(rank);
        if (place < 0) {
            if (table_.source[chunk] != kEvery) {
                finding.fault = Fault::undefined;
                return finding;
            }
            for (int32_t other = 0; other < table_.ranks; ++other) {
                if (other != rank) finding.missing.push_back(other);
            }
            return finding;
        }
        if (counts_.undefined(place)) {
            finding.fault = Fault::undefined;
        } else {
            collect(finding, static_cast<size_t>(place));
        }
        trace_.start(rows_, table_.source[chunk], finding.doubled.empty() ? rank : finding.doubled.front());
        rows_.replay(trace_);
        const Trace::Value& value = trace_[place];
        finding.transfer = finding.fault == Fault::undefined ? value.spoilt : value.written;
        finding.unheld_sender = value.unheld_sender;
        if (!finding.doubled.empty()) finding.other = value.doubled;
        return finding;
    }

    // The blocks once more, for every contributor of one place.
    void collect(Finding& finding, size_t place) {
        int32_t source = table_.source[finding.chunk];
        int32_t all = contributors(finding.chunk), width = block_width();
        for (int32_t first = 0; first < all; first += width) {
            int32_t here = std::min(width, all - first);
            counts_.start(rows_, source, first, here);
            rows_.replay(counts_);
            for (int32_t bit = 0; bit < here; ++bit) {
                int32_t rank = source == kEvery ? first + bit : source;
                if (counts_.lacks(place, bit)) finding.missing.push_back(rank);
                if (counts_.doubles(place, bit)) finding.doubled.push_back(rank);
            }
        }
    }

    const Transfers& table_;
    size_t block_bytes_;
    std::optional<RowsByChunk> by_chunk_;  // only of schedules that have to be replayed
    ChunkRows rows_;
    Counts counts_;
    Trace trace_;
    WorkLimit work_limit_;
};

}  // namespace

std::optional<Finding> check_semantics(const Transfers& table, size_t block_bytes) {
    return Checker(table, block_bytes).check();
}

}  // namespace weft::verification
