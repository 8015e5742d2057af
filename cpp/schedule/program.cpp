// Python half: src/weft/simulation/simulator.py and src/weft/runtime/engines/native_engine.py.
#include "schedule/program.hpp"

#include <limits>
#include <numeric>

#include "common/work_limit.hpp"

namespace weft {

namespace {

// Which segment carries each piece of each row. Rows of empty chunks have no piece.
class Pieces {
public:
    explicit Pieces(const Cut& cut) : cut_(cut), per_chunk_(cut.chunk_bytes.size()) {
        for (size_t chunk = 0; chunk < per_chunk_.size(); ++chunk) {
            int64_t bytes = cut.chunk_bytes[chunk];
            int64_t count = bytes == 0 ? 0 : cut.segment_bytes == 0 ? 1 : (bytes - 1) / cut.segment_bytes + 1;
            if (count > cut.max_segments) throw TooMany("segments");
            per_chunk_[chunk] = static_cast<int32_t>(count);
            one_each_ = one_each_ && count == 1;
        }
    }

    Bulk<Segment> group(const Rows& rows) {
        Bulk<Segment> segments;
        segments.reserve(rows.size());
        if (!one_each_) first_.resize(rows.size());
        same_ = one_each_ && !any_continues(rows);
        if (!same_) carrier_.reserve(rows.size());
        uint64_t message = 0;
        for (size_t row = 0; row < rows.size();) {
            size_t head = row;
            uint64_t index = 0;
            bool open = false;
            do {
                int32_t chunk = rows.chunk[row];
                if (!one_each_) first_[row] = static_cast<int64_t>(carrier_.size());
                for (int32_t piece = 0; piece < per_chunk_[chunk]; ++piece) {
                    int64_t bytes = piece_bytes(chunk, piece);
                    bool fits =
                        open && (cut_.segment_bytes == 0 || segments.back().bytes + bytes <= cut_.segment_bytes);
                    if (fits) {
                        segments.back().bytes += bytes;
                    } else {
                        segments.push_back({index++ << 32 | message, bytes, static_cast<int32_t>(head)});
                        open = true;
                    }
                    if (!same_) carrier_.push_back(static_cast<int32_t>(segments.size()) - 1);
                }
                if (static_cast<int64_t>(segments.size()) > cut_.max_segments) throw TooMany("segments");
                ++row;
            } while (row < rows.size() && rows.continues(row));
            ++message;
        }
        return segments;
    }

    int32_t count(int32_t chunk) const { return per_chunk_[chunk]; }
    int32_t carrier(size_t row, int32_t piece) const {
        if (same_) return static_cast<int32_t>(row);
        return carrier_[one_each_ ? static_cast<int64_t>(row) : first_[row] + piece];
    }

private:
    static bool any_continues(const Rows& rows) {
        for (size_t row = 1; row < rows.size(); ++row) {
            if (rows.continues(row)) return true;
        }
        return false;
    }

    int64_t piece_bytes(int32_t chunk, int32_t piece) const {
        int64_t count = per_chunk_[chunk], bytes = cut_.chunk_bytes[chunk];
        return bytes / count + (piece < bytes % count);
    }

    const Cut& cut_;
    std::vector<int32_t> per_chunk_;
    bool one_each_ = true;  // no chunk is empty or cut: a row has one piece
    bool same_ = false;     // and no message has two rows: row and segment are the same thing
    Bulk<int64_t> first_;
    Bulk<int32_t> carrier_;
};

// One row seen from its chunk: sorted copies make the walk below sequential.
struct Access {
    uint32_t row;
    int32_t step;
    int32_t from, to;  // places: rank * slots + slot
};

Bulk<Access> by_chunk(const Rows& rows, const Cut& cut, std::vector<int64_t>& start) {
    start.assign(cut.chunk_bytes.size() + 1, 0);
    for (int32_t chunk : rows.chunk) ++start[chunk + 1];
    std::partial_sum(start.begin(), start.end(), start.begin());
    std::vector<int64_t> next(start.begin(), start.end() - 1);
    Bulk<Access> sorted(rows.size());
    for (size_t row = 0; row < rows.size(); ++row) {
        sorted[next[rows.chunk[row]]++] = {static_cast<uint32_t>(row), rows.step[row],
                                           rows.src[row] * cut.slots + rows.from_slot(row),
                                           rows.dst[row] * cut.slots + rows.to_slot(row)};
    }
    return sorted;
}

// Follows one piece through the steps and adds an edge wherever a segment has to wait for another.
class DependencyBuilder {
public:
    DependencyBuilder(Program& program, int64_t places) : program_(program), place_(places) {}

    void read(int32_t place, int32_t segment) {
        Place& p = fresh(place);
        if (p.writer != kNone) add_edge(program_.segments[p.writer].when_applied, segment, false);
        readers_.push_back({segment, p.readers});
        p.readers = static_cast<int32_t>(readers_.size()) - 1;
    }

    void write(int32_t place, int32_t segment) {
        Place& p = fresh(place);
        // With readers in between, waiting for them is waiting for the write before, too.
        if (p.readers == kNone && p.writer != kNone) add_edge(program_.segments[p.writer].when_applied, segment, true);
        for (int32_t r = p.readers; r != kNone; r = readers_[r].next) {
            add_edge(program_.segments[readers_[r].segment].when_left, segment, true);
        }
        p.readers = kNone;
        p.writer = segment;
    }

    void next_piece() {
        ++epoch_;
        readers_.clear();
    }

private:
    struct Place {
        int32_t epoch = 0;
        int32_t writer = kNone;
        int32_t readers = kNone;
    };
    struct Reader {
        int32_t segment;
        int32_t next;
    };

    Place& fresh(int32_t place) {
        Place& p = place_[place];
        if (p.epoch != epoch_) p = {epoch_, kNone, kNone};
        return p;
    }

    void add_edge(int32_t& head, int32_t segment, bool apply) {
        uint32_t target = static_cast<uint32_t>(segment) * 2 + apply;
        // Neighbouring chunks of one message would repeat the same edge.
        if (head != kNone && program_.edges[head].target == target) return;
        if (program_.edges.size() >= static_cast<size_t>(std::numeric_limits<int32_t>::max())) {
            throw TooMany("dependencies");
        }
        program_.edges.push_back({target, head});
        head = static_cast<int32_t>(program_.edges.size()) - 1;
        ++(apply ? program_.segments[segment].apply_needs : program_.segments[segment].start_needs);
    }

    Program& program_;
    std::vector<Place> place_;
    std::vector<Reader> readers_;
    int32_t epoch_ = 1;
};

}  // namespace

Program lower(const Rows& rows, const Cut& cut) {
    Program program;
    Pieces pieces(cut);
    program.segments = pieces.group(rows);
    program.edges.reserve(program.segments.size() * 2);
    std::vector<int64_t> start;
    Bulk<Access> sorted = by_chunk(rows, cut, start);
    WorkLimit work_limit;
    DependencyBuilder dependencies(program, static_cast<int64_t>(cut.ranks) * cut.slots);
    for (size_t chunk = 0; chunk + 1 < start.size(); ++chunk) {
        std::span<const Access> mine(sorted.data() + start[chunk],
                                     static_cast<size_t>(start[chunk + 1] - start[chunk]));
        for (int32_t piece = 0; piece < pieces.count(static_cast<int32_t>(chunk)); ++piece) {
            work_limit.spend(mine.size() * 16 + 16);
            dependencies.next_piece();
            for (size_t i = 0; i < mine.size();) {
                size_t end = i;
                for (; end < mine.size() && mine[end].step == mine[i].step; ++end) {
                    dependencies.read(mine[end].from, pieces.carrier(mine[end].row, piece));
                }
                for (; i < end; ++i) dependencies.write(mine[i].to, pieces.carrier(mine[i].row, piece));
            }
        }
    }
    return program;
}

}  // namespace weft
