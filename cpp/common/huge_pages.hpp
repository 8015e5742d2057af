// Vectors for millions of rows: on huge pages where the kernel offers them.
//
// A third of a large simulation went into page faults on 4 KiB pages; this is the cure.
#pragma once

#include <cstddef>
#include <new>
#include <vector>

namespace weft {

#ifdef WEFT_HUGE_PAGES
// Advice only: without huge pages everything works, more slowly. Defined in huge_pages.cpp, which is for Linux.
void prefer_huge_pages(void* memory, size_t bytes);
#else
inline void prefer_huge_pages(void*, size_t) {}
#endif

template <typename T>
struct HugeAllocator {
    using value_type = T;

    HugeAllocator() = default;
    template <typename U>
    HugeAllocator(const HugeAllocator<U>&) {}

    T* allocate(size_t count) {
        if (count > static_cast<size_t>(-1) / sizeof(T) - kHuge) throw std::bad_alloc();
        size_t bytes = count * sizeof(T);
        if (!is_large(count)) return static_cast<T*>(::operator new(bytes));
        void* memory = ::operator new((bytes + kHuge - 1) / kHuge * kHuge, std::align_val_t{kHuge});
        prefer_huge_pages(memory, bytes);
        return static_cast<T*>(memory);
    }

    void deallocate(T* memory, size_t count) {
        if (is_large(count)) {
            ::operator delete(memory, std::align_val_t{kHuge});
        } else {
            ::operator delete(memory);
        }
    }

    template <typename U>
    bool operator==(const HugeAllocator<U>&) const {
        return true;
    }

private:
    static constexpr size_t kHuge = size_t{2} << 20;
    static bool is_large(size_t count) { return count * sizeof(T) >= kHuge; }
};

template <typename T>
using Bulk = std::vector<T, HugeAllocator<T>>;

}  // namespace weft
