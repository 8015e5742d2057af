// Python half: src/weft/runtime/buffers.py.
#include "runtime/kernels.hpp"

#include <atomic>
#include <stdexcept>

#include "runtime/kernels_level.hpp"

namespace weft::runtime {
namespace {

#ifdef WEFT_KERNELS_X86
Level with_avx512() {
    Level level = avx2_level;
    level.name = "avx512";
    level.types[static_cast<size_t>(DType::f16)] = avx512_halves;
    level.types[static_cast<size_t>(DType::bf16)] = avx512_brains;
    return level;
}
#endif

// Slowest first.
std::vector<const Level*> levels_here() {
    std::vector<const Level*> levels{&plain_level};
#ifdef WEFT_KERNELS_X86
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("f16c")) {
        levels.push_back(&avx2_level);
        static const Level avx512_level = with_avx512();
        // Processors with AVX-512 but without VBMI2 are of the years when all of its width cost clock frequency.
        bool wide = __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vbmi2");
        if (wide) levels.push_back(&avx512_level);
    }
#endif
    return levels;
}

// The one state of this file: all levels give the same bits, so it is a choice of speed only.
std::atomic<const Level*> chosen{levels_here().back()};

const TypeKernels& kernels(DType dtype) {
    return chosen.load(std::memory_order_relaxed)->types[static_cast<size_t>(dtype)];
}

}  // namespace

size_t element_bytes(DType dtype) {
    switch (dtype) {
        case DType::i8:
        case DType::u8: return 1;
        case DType::f16:
        case DType::bf16:
        case DType::i16: return 2;
        case DType::f32:
        case DType::i32: return 4;
        case DType::f64:
        case DType::i64: return 8;
    }
    throw std::invalid_argument("no such element type");
}

void reduce(DType dtype, ReduceOp op, void* into, const void* from, size_t elements) {
    reduce_to(dtype, op, into, into, from, elements);
}

void reduce_to(DType dtype, ReduceOp op, void* out, const void* a, const void* b, size_t elements) {
    Combine combine = kernels(dtype).combine[static_cast<size_t>(op)];
    if (!combine) throw std::invalid_argument("bitwise operations are for integers, not for floating point");
    combine(out, a, b, elements);
}

void divide(DType dtype, void* values, size_t elements, int64_t by) {
    if (by <= 0) throw std::invalid_argument("the number of values averaged must be positive");
    kernels(dtype).divide(values, elements, by);
}

std::vector<std::string> cpu_levels() {
    std::vector<std::string> names;
    for (const Level* level : levels_here()) names.emplace_back(level->name);
    return names;
}

std::string cpu_level() { return chosen.load(std::memory_order_relaxed)->name; }

void set_cpu_level(std::string_view name) {
    for (const Level* level : levels_here()) {
        if (level->name == name) {
            chosen.store(level, std::memory_order_relaxed);
            return;
        }
    }
    throw std::invalid_argument("this machine has no CPU level '" + std::string(name) + "'");
}

}  // namespace weft::runtime
