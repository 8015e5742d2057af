// Room for tasks that have arrived before they can be applied, and have no place in the staging area of their script. What is
// given back is used again, also by later operations.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <unordered_map>
#include <utility>
#include <vector>

namespace weft::runtime {

class LateTasks {
public:
    std::byte* room(int32_t task, size_t bytes) {
        Room& room = used_[task];
        if (room.bytes >= bytes) return room.data.get();
        auto fits = std::ranges::find_if(free_, [&](const Room& one) { return one.bytes >= bytes; });
        if (fits == free_.end()) {
            room = {std::make_unique_for_overwrite<std::byte[]>(bytes), bytes};
        } else {
            room = std::move(*fits);
            free_.erase(fits);
        }
        return room.data.get();
    }

    void give_back(int32_t task) {
        auto used = used_.find(task);
        if (free_.size() < kKept) free_.push_back(std::move(used->second));
        used_.erase(used);
    }

    void clear() { used_.clear(); }

private:
    struct Room {
        std::unique_ptr<std::byte[]> data;
        size_t bytes = 0;
    };
    static constexpr size_t kKept = 16;

    std::unordered_map<int32_t, Room> used_;
    std::vector<Room> free_;
};

}  // namespace weft::runtime
