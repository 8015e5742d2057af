// Element-wise reductions as Python sees them.
// Python half: src/weft/runtime/buffers.py.
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/vector.h>

#include <array>
#include <stdexcept>
#include <utility>

#include "bindings/arrays.hpp"
#include "bindings/module.hpp"
#include "bindings/names.hpp"
#include "runtime/kernels.hpp"

namespace weft {
namespace {

using runtime::DType;
using runtime::ReduceOp;
using Bytes = nb::ndarray<uint8_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

template <typename Value, size_t count>
using Names = std::array<std::pair<std::string_view, Value>, count>;

constexpr Names<DType, 9> dtypes{{{"float16", DType::f16},
                                  {"bfloat16", DType::bf16},
                                  {"float32", DType::f32},
                                  {"float64", DType::f64},
                                  {"int32", DType::i32},
                                  {"int64", DType::i64},
                                  {"int16", DType::i16},
                                  {"int8", DType::i8},
                                  {"uint8", DType::u8}}};
constexpr Names<ReduceOp, 8> ops{{{"sum", ReduceOp::sum},
                                  {"avg", ReduceOp::avg},
                                  {"min", ReduceOp::min},
                                  {"max", ReduceOp::max},
                                  {"prod", ReduceOp::prod},
                                  {"band", ReduceOp::band},
                                  {"bor", ReduceOp::bor},
                                  {"bxor", ReduceOp::bxor}}};

template <typename Value, size_t count>
Value named(const Names<Value, count>& names, std::string_view name) {
    for (const auto& [known, value] : names) {
        if (known == name) return value;
    }
    std::string message("'");
    message.append(name).append("' is none of");
    for (const auto& [known, value] : names) message.append(" ").append(known);
    throw std::invalid_argument(message);
}

size_t elements_of(DType dtype, size_t bytes) {
    if (bytes % runtime::element_bytes(dtype)) throw std::invalid_argument("the bytes are no whole number of elements");
    return bytes / runtime::element_bytes(dtype);
}

// The second operand as well may be the result.
void check_regions(const Bytes& out, const In<uint8_t>& in) {
    if (in.shape(0) != out.shape(0)) throw std::invalid_argument("regions differ in length");
    auto from = reinterpret_cast<uintptr_t>(in.data());
    auto to = reinterpret_cast<uintptr_t>(out.data());
    if (from != to && from < to + out.shape(0) && to < from + in.shape(0)) {
        throw std::invalid_argument("regions overlap partially");
    }
}

void reduce_py(Bytes into, In<uint8_t> other, std::string_view dtype_name, std::string_view op_name) {
    DType dtype = named(dtypes, dtype_name);
    ReduceOp op = named(ops, op_name);
    size_t elements = elements_of(dtype, into.shape(0));
    check_regions(into, other);
    nb::gil_scoped_release release;
    runtime::reduce(dtype, op, into.data(), other.data(), elements);
}

void reduce_to_py(Bytes out, In<uint8_t> a, In<uint8_t> b, std::string_view dtype_name, std::string_view op_name) {
    DType dtype = named(dtypes, dtype_name);
    ReduceOp op = named(ops, op_name);
    size_t elements = elements_of(dtype, out.shape(0));
    check_regions(out, a);
    check_regions(out, b);
    nb::gil_scoped_release release;
    runtime::reduce_to(dtype, op, out.data(), a.data(), b.data(), elements);
}

void divide_py(Bytes values, std::string_view dtype_name, int64_t by) {
    DType dtype = named(dtypes, dtype_name);
    size_t elements = elements_of(dtype, values.shape(0));
    nb::gil_scoped_release release;
    runtime::divide(dtype, values.data(), elements, by);
}

}  // namespace

runtime::DType dtype_named(std::string_view name) { return named(dtypes, name); }
runtime::ReduceOp op_named(std::string_view name) { return named(ops, name); }

void bind_kernels(nb::module_& m) {
    m.def("reduce", &reduce_py, nb::arg("into"), nb::arg("other"), nb::arg("dtype"), nb::arg("op"),
          "into = into op other, element by element.");
    m.def("reduce_to", &reduce_to_py, nb::arg("out"), nb::arg("a"), nb::arg("b"), nb::arg("dtype"), nb::arg("op"),
          "out = a op b, element by element.");
    m.def("divide", &divide_py, nb::arg("values"), nb::arg("dtype"), nb::arg("by"),
          "values = values / by, the last step of an average.");
    m.def("cpu_levels", &runtime::cpu_levels, "Instruction sets this machine can run, slowest first.");
    m.def("cpu_level", &runtime::cpu_level, "The instruction set in use.");
    m.def("set_cpu_level", &runtime::set_cpu_level, nb::arg("name"),
          "Use one of cpu_levels() in this process; all give the same bits.");
}

}  // namespace weft
