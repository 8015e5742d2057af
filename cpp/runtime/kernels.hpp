// Element-wise arithmetic of the reducing collectives.
//
// Results are the bits numpy gives on x86 (float16, float32, float64, integers) and torch (bfloat16), whatever
// the processor: halves are computed in float32 and rounded to nearest even after every operation, nothing is fused,
// integers wrap. Arithmetic turns a NaN into a quiet one, whose payload is not promised (numpy's and torch's own
// varies with the position). min and max move bits as they are: a NaN wins, the first operand's before the second's.
// Of +0.0 and -0.0 they keep the first for halves and the second for float32 and float64: that is numpy; torch does
// one or the other, by position.
//
// Regions are the same or do not overlap; they need no alignment.
//
// Python half: src/weft/runtime/buffers.py.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace weft::runtime {

enum class DType : uint8_t { f16, bf16, f32, f64, i32, i64, i16, i8, u8 };
// avg adds while values are under way; the rank that has the total divides it. Bitwise operations are for integers only.
enum class ReduceOp : uint8_t { sum, avg, min, max, prod, band, bor, bxor };

size_t element_bytes(DType dtype);

// into = into op from
void reduce(DType dtype, ReduceOp op, void* into, const void* from, size_t elements);
// out = a op b
void reduce_to(DType dtype, ReduceOp op, void* out, const void* a, const void* b, size_t elements);
// values = values / by, the last step of avg; `by` is positive. Integers are rounded towards zero, as NCCL does.
void divide(DType dtype, void* values, size_t elements, int64_t by);

// The instruction sets this machine can run, slowest first; the last one is used unless told otherwise.
std::vector<std::string> cpu_levels();
std::string cpu_level();
// For tests and measurements, process-wide. std::invalid_argument if this machine has no such level.
void set_cpu_level(std::string_view name);

}  // namespace weft::runtime
