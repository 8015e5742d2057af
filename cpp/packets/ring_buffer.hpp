// A queue in one piece of memory that is used again and again: std::deque allocates all the time.
// Python half: src/weft/packets/packet_simulator.py.
#pragma once

#include <cstddef>
#include <vector>

namespace weft {

template <typename T>
class RingBuffer {
public:
    bool empty() const { return size_ == 0; }
    size_t size() const { return size_; }
    T& front() { return items_[head_]; }
    T& back() { return items_[(head_ + size_ - 1) & (items_.size() - 1)]; }
    const T& operator[](size_t place) const { return items_[(head_ + place) & (items_.size() - 1)]; }

    void push(const T& item) {
        if (size_ == items_.size()) grow();
        items_[(head_ + size_) & (items_.size() - 1)] = item;
        ++size_;
    }

    void pop() {
        head_ = (head_ + 1) & (items_.size() - 1);
        --size_;
    }

private:
    void grow() {
        std::vector<T> larger(items_.empty() ? 4 : 2 * items_.size());
        for (size_t i = 0; i < size_; ++i) larger[i] = (*this)[i];
        items_.swap(larger);
        head_ = 0;
    }

    std::vector<T> items_;  // as many as a power of two
    size_t head_ = 0, size_ = 0;
};

}  // namespace weft
