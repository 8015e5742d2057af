// Vectors for millions of rows: on huge pages where the kernel offers them.
//
// A third of a large simulation went into page faults on 4 KiB pages; this is the cure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <new>
#include <vector>

namespace weft {

#ifdef WEFT_HUGE_PAGES
// Advice only: without huge pages everything works, more slowly. Defined in huge_pages.cpp, which is for Linux.
void prefer_huge_pages(void* memory, size_t bytes);
#else
inline void prefer_huge_pages(void*, size_t) {}
#endif

constexpr size_t kHugePage = size_t{2} << 20;

// The same for memory that need not begin where a huge page does: for the whole ones within it.
inline void prefer_huge_pages_within(void* memory, size_t bytes) {
    size_t skipped = -reinterpret_cast<uintptr_t>(memory) % kHugePage;
    if (bytes < skipped + kHugePage) return;
    prefer_huge_pages(static_cast<char*>(memory) + skipped, (bytes - skipped) / kHugePage * kHugePage);
}

template <typename T>
struct HugeAllocator {
    using value_type = T;

    HugeAllocator() = default;
    template <typename U>
    HugeAllocator(const HugeAllocator<U>&) {}

    T* allocate(size_t count) {
        if (count > static_cast<size_t>(-1) / sizeof(T) - kHugePage) throw std::bad_alloc();
        size_t bytes = count * sizeof(T);
        if (!is_large(count)) return static_cast<T*>(::operator new(bytes));
        void* memory = ::operator new((bytes + kHugePage - 1) / kHugePage * kHugePage, std::align_val_t{kHugePage});
        prefer_huge_pages(memory, bytes);
        return static_cast<T*>(memory);
    }

    void deallocate(T* memory, size_t count) {
        if (is_large(count)) {
            ::operator delete(memory, std::align_val_t{kHugePage});
        } else {
            ::operator delete(memory);
        }
    }

    template <typename U>
    bool operator==(const HugeAllocator<U>&) const {
        return true;
    }

private:
    static bool is_large(size_t count) { return count * sizeof(T) >= kHugePage; }
};

template <typename T>
using Bulk = std::vector<T, HugeAllocator<T>>;

}  // namespace weft
