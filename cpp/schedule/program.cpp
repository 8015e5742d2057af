// Python half: src/weft/simulation/simulator.py and src/weft/runtime/engines/native_engine.py.
#include "schedule/program.hpp"

#include <algorithm>
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

    void group(const Rows& rows, Program& program) {
        Bulk<Segment>& segments = program.segments;
        segments.reserve(rows.size());
        if (!one_each_) first_.resize(rows.size());
        same_ = one_each_ && !any_continues(rows);
        if (same_) {
            for (size_t row = 0; row < rows.size(); ++row) {
                segments.push_back({cut_.chunk_bytes[rows.chunk[row]], static_cast<int32_t>(row)});
            }
            if (static_cast<int64_t>(segments.size()) > cut_.max_segments) throw TooMany("segments");
            return;
        }
        carrier_.reserve(rows.size());
        for (size_t row = 0; row < rows.size();) {
            size_t head = row;
            uint32_t index = 0;
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
                        segments.push_back({bytes, static_cast<int32_t>(head)});
                        if (cut_.segment_bytes > 0) program.index.push_back(index++);
                        open = true;
                    }
                    carrier_.push_back(static_cast<int32_t>(segments.size()) - 1);
                }
                if (static_cast<int64_t>(segments.size()) > cut_.max_segments) throw TooMany("segments");
                ++row;
            } while (row < rows.size() && rows.continues(row));
        }
    }

    // Whether each row is a segment of its own.
    bool same() const { return same_; }
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

// Follows one piece through the steps, or all at once, and adds an edge wherever a segment has to wait for another.
template <bool kAllAtOnce>
class DependencyBuilder {
public:
    explicit DependencyBuilder(Program& program, int64_t places) : program_(program), place_(places) {
        if (kAllAtOnce) readers_.reserve(program.segments.size());
    }

    void read(int32_t place, int32_t segment) {
        Place& p = touch(place);
        if (p.writer != kNone) add_edge(program_.segments[p.writer].when_applied, segment, false);
        readers_.push_back({segment, p.readers});
        p.readers = static_cast<int32_t>(readers_.size()) - 1;
    }

    void write(int32_t place, int32_t segment) {
        Place& p = touch(place);
        // With readers in between, waiting for them is waiting for the write before, too.
        if (p.readers == kNone && p.writer != kNone) add_edge(program_.segments[p.writer].when_applied, segment, true);
        for (int32_t r = p.readers; r != kNone; r = readers_[r].next) {
            add_edge(program_.segments[readers_[r].segment].when_left, segment, true);
        }
        p.readers = kNone;
        p.writer = segment;
    }

    void next_piece() {
        for (int32_t place : touched_) place_[place] = {};
        touched_.clear();
        readers_.clear();
    }

private:
    struct Place {
        int32_t writer = kNone;
        int32_t readers = kNone;
    };
    struct Reader {
        int32_t segment;
        int32_t next;
    };

    Place& touch(int32_t place) {
        Place& p = place_[place];
        if (!kAllAtOnce && p.writer == kNone && p.readers == kNone) touched_.push_back(place);
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
    Bulk<Place> place_;
    Bulk<Reader> readers_;
    std::vector<int32_t> touched_;  // of the piece at hand
};

// Where rows are segments, and use most places of most chunks, one table of all these takes neither sorted rows nor leaps
// through the segments. Edges come out in the same order: those of a segment all belong to its one chunk.
void link_rows(Program& program, const Rows& rows, const Cut& cut, int64_t places) {
    auto chunks = static_cast<int32_t>(cut.chunk_bytes.size());
    DependencyBuilder<true> dependencies(program, places * chunks);
    auto place = [&](int32_t rank, int32_t slot, size_t row) {
        return (rank * cut.slots + slot) * chunks + rows.chunk[row];
    };
    WorkLimit work_limit;
    for (size_t row = 0; row < rows.size();) {
        size_t end = row;
        for (; end < rows.size() && rows.step[end] == rows.step[row]; ++end) {
            dependencies.read(place(rows.src[end], rows.from_slot(end), end), static_cast<int32_t>(end));
        }
        work_limit.spend((end - row) * 16 + 16);
        for (; row < end; ++row) {
            dependencies.write(place(rows.dst[row], rows.to_slot(row), row), static_cast<int32_t>(row));
        }
    }
}

}  // namespace

Program lower(const Rows& rows, const Cut& cut) {
    Program program;
    Pieces pieces(cut);
    pieces.group(rows, program);
    program.edges.reserve(program.segments.size() * 2);
    int64_t places = static_cast<int64_t>(cut.ranks) * cut.slots, chunks = cut.chunk_bytes.size();
    if (pieces.same() && places <= 2 * static_cast<int64_t>(rows.size()) / std::max<int64_t>(chunks, 1)) {
        link_rows(program, rows, cut, places);
        return program;
    }
    std::vector<int64_t> start;
    Bulk<Access> sorted = by_chunk(rows, cut, start);
    WorkLimit work_limit;
    DependencyBuilder<false> dependencies(program, places);
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
