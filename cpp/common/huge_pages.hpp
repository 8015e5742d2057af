// Vectors for millions of rows: on huge pages where the kernel offers them.
//
// A third of a large simulation went into page faults on 4 KiB pages; this is the cure.
#pragma once

#include <sys/mman.h>

#include <cstddef>
#include <cstdlib>
#include <new>
#include <vector>

namespace weft {

template <typename T>
struct HugeAllocator {
    using value_type = T;

    HugeAllocator() = default;
    template <typename U>
    HugeAllocator(const HugeAllocator<U>&) {}

    T* allocate(size_t count) {
        constexpr size_t kHuge = size_t{2} << 20;
        size_t bytes = count * sizeof(T);
        bool large = bytes >= kHuge;
        size_t align = large ? kHuge : alignof(std::max_align_t);
        if (count > static_cast<size_t>(-1) / sizeof(T) - kHuge) throw std::bad_alloc();
        void* memory = std::aligned_alloc(align, (bytes + align - 1) / align * align);
        if (memory == nullptr) throw std::bad_alloc();
        // Advice only: without huge pages everything works, more slowly.
        if (large) static_cast<void>(madvise(memory, bytes, MADV_HUGEPAGE));
        return static_cast<T*>(memory);
    }

    void deallocate(T* memory, size_t) { std::free(memory); }

    template <typename U>
    bool operator==(const HugeAllocator<U>&) const {
        return true;
    }
};

template <typename T>
using Bulk = std::vector<T, HugeAllocator<T>>;

}  // namespace weft
