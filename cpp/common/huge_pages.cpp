#include "common/huge_pages.hpp"

#include <sys/mman.h>

namespace weft {

void prefer_huge_pages(void* memory, size_t bytes) { static_cast<void>(madvise(memory, bytes, MADV_HUGEPAGE)); }

}  // namespace weft
