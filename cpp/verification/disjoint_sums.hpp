// A quick proof that chunks come out right, which most schedules of sums allow: a number for each place will do.
//
// In the beginning the contributions at different places have nothing in common. Where one such value is added to
// another, take it from then on as if it were at the new place only: what is left has nothing in common still, and the
// new value has as many contributions as both. So a value of as many as there are holds each exactly once, and so do
// its copies. Of everything else (a part of a sum that is copied, or used again after it was sent on) nothing is known;
// what becomes of it is up to the replay in semantics.cpp, which takes a bit for each contributor.
//
// Python half: src/weft/verification/semantics.py.
#pragma once

#include <cstdint>
#include <numeric>
#include <span>
#include <vector>

#include "verification/transfers.hpp"

namespace weft::verification {

// What the proof needs of a row, by chunk and in the order of steps.
class MovesByChunk {
public:
    struct Move {
        Place from;
        Place to : 30;
        Place reduces : 1;
        Place opens_step : 1;  // the first move of its chunk in a step
    };

    explicit MovesByChunk(const Transfers& table) : end_(table.chunks(), 0), moves_(table.size()) {
        for (int32_t chunk : table.chunk) ++end_[chunk];
        std::exclusive_scan(end_.begin(), end_.end(), end_.begin(), uint32_t{0});
        std::vector<int32_t> latest(table.chunks(), -1);
        for (size_t row = 0; row < table.size(); ++row) {
            int32_t chunk = table.chunk[row];
            bool opens = table.step[row] != latest[chunk];
            latest[chunk] = table.step[row];
            moves_[end_[chunk]++] = {table.read_place(row), table.write_place(row), table.op[row] == kReduce, opens};
        }
    }

    std::span<const Move> moves(size_t chunk) const {
        uint32_t begin = chunk == 0 ? 0 : end_[chunk - 1];
        return {moves_.data() + begin, end_[chunk] - begin};
    }

private:
    std::vector<uint32_t> end_;  // while it is filled, where the next move of a chunk goes
    Bulk<Move> moves_;
};

class DisjointSums {
public:
    explicit DisjointSums(const Transfers& table) : table_(table), moves_(table), places_(table.places()) {}

    size_t work(int32_t chunk) const { return 8 * moves_.moves(chunk).size() + 2 * static_cast<size_t>(table_.ranks); }

    // Whether the chunk is proven right; if not, it may still be.
    bool prove(int32_t chunk) {
        source_ = table_.source[chunk];
        all_ = source_ == kEvery ? table_.ranks : 1;
        ++epoch_;
        auto moves = moves_.moves(chunk);
        for (size_t begin = 0; begin < moves.size();) {
            size_t end = begin + 1;
            while (end < moves.size() && !moves[end].opens_step) ++end;
            if (!replay_step(moves.subspan(begin, end - begin))) return false;
            begin = end;
        }
        int32_t target = table_.target[chunk];
        if (target != kEvery) return at(target).size == all_;
        for (int32_t rank = 0; rank < table_.ranks; ++rank) {
            if (at(rank).size != all_) return false;
        }
        return true;
    }

private:
    // Contributions at a place, all of them known to be there once and at no other place of which this is known (unless
    // they are complete); 0: nothing is known.
    struct Value {
        int32_t size = 0;
        uint32_t epoch = 0;  // the chunk that it is of
        uint32_t written : 31 = 0;  // the step in which it was written last, of those with several moves
        uint32_t summed : 1 = 0;  // and whether by a sum
    };

    Value& at(Place place) {
        Value& value = places_[place];
        if (value.epoch != epoch_) {
            bool holds = place < static_cast<Place>(table_.ranks) &&
                         (source_ == kEvery || source_ == static_cast<int32_t>(place));
            value.size = holds;
            value.epoch = epoch_;
        }
        return value;
    }

    // False where two moves of a step write one place and are not both sums.
    bool replay_step(std::span<const MovesByChunk::Move> moves) {
        if (moves.size() == 1) {
            move(at(moves[0].from), at(moves[0].to), moves[0].reduces);
            return true;
        }
        ++step_;
        for (const auto& next : moves) {
            Value& to = at(next.to);
            if (to.written == step_ && !(to.summed && next.reduces)) return false;
            to.written = step_;
            to.summed = next.reduces;
        }
        for (const auto& next : moves) {
            Value &from = at(next.from), &to = at(next.to);
            if (from.written == step_) {
                to.size = 0;  // it was read before it was written, and what it held then is gone
            } else {
                move(from, to, next.reduces);
            }
        }
        return true;
    }

    void move(Value& from, Value& to, bool reduces) const {
        if (!reduces) {
            to.size = from.size == all_ ? all_ : 0;
            return;
        }
        bool known = from.size > 0 && to.size > 0 && from.size <= all_ - to.size && &from != &to;
        to.size = known ? from.size + to.size : 0;
        if (known) from.size = 0;
    }

    const Transfers& table_;
    MovesByChunk moves_;
    std::vector<Value> places_;
    int32_t source_ = 0, all_ = 0;
    uint32_t epoch_ = 0, step_ = 0;
};

}  // namespace weft::verification
