// The table of a schedule and the order of its rows, for Python.
// Python half: src/weft/columns.py and src/weft/schedule/ir.py.
#include <nanobind/stl/optional.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <stdexcept>
#include <tuple>

#include "bindings/arrays.hpp"
#include "bindings/module.hpp"
#include "bindings/table.hpp"
#include "common/huge_pages.hpp"
#include "schedule/row_order.hpp"

namespace weft {
namespace {

std::optional<Out<int64_t>> row_order_py(const std::vector<In<int32_t>>& keys) {
    std::vector<std::span<const int32_t>> views;
    for (const auto& key : keys) {
        if (key.shape(0) != keys.front().shape(0)) throw std::invalid_argument("columns differ in length");
        views.push_back(view(key));
    }
    if (views.empty()) return std::nullopt;
    auto order = row_order(views);
    if (!order) return std::nullopt;
    return to_numpy(std::move(*order));
}

// For columns that nobody may change: Python's own copy of so many bytes would take a page fault for every 4 KiB.
nb::bytes copy_bytes_py(In<uint8_t> column) {
    nb::object copy = nb::steal(PyBytes_FromStringAndSize(nullptr, static_cast<Py_ssize_t>(column.nbytes())));
    if (!copy.is_valid()) throw nb::python_error();
    char* memory = PyBytes_AS_STRING(copy.ptr());  // nobody else has seen it yet
    prefer_huge_pages_within(memory, column.nbytes());
    std::copy_n(reinterpret_cast<const char*>(column.data()), column.nbytes(), memory);
    return nb::borrow<nb::bytes>(copy);
}

// The same for a column that is still to be written: the array is a view of the bytes, for as long as somebody writes.
std::tuple<nb::bytes, Out<uint8_t>> blank_bytes_py(size_t count) {
    nb::object blank = nb::steal(PyBytes_FromStringAndSize(nullptr, static_cast<Py_ssize_t>(count)));
    if (!blank.is_valid()) throw nb::python_error();
    char* memory = PyBytes_AS_STRING(blank.ptr());
    prefer_huge_pages_within(memory, count);
    Out<uint8_t> view(reinterpret_cast<uint8_t*>(memory), {count}, blank);
    return {nb::borrow<nb::bytes>(blank), view};
}

Out<int64_t> message_starts_py(const Table& table) {
    Bulk<int64_t> starts;
    {
        nb::gil_scoped_release release;
        Rows rows = table.rows();
        starts.reserve(rows.size());  // what is not written takes no memory
        for (size_t row = 0; row < rows.size(); ++row) {
            if (!rows.continues(row)) starts.push_back(static_cast<int64_t>(row));
        }
    }
    return to_numpy(std::move(starts));
}

}  // namespace

void bind_schedule(nb::module_& m) {
    m.def("copy_bytes", &copy_bytes_py, nb::arg("column"), "A copy of a column's memory.");
    m.def("blank_bytes", &blank_bytes_py, nb::arg("count"),
          "So many bytes of any contents, and an array to write them by before anybody else sees them.");
    m.def("message_starts", &message_starts_py, nb::arg("table"), "First row of each message.");
    m.def("row_order", &row_order_py, nb::arg("keys"),
          "Stable sorting permutation by several columns, most significant first, or None if in order already.");
    nb::class_<Table>(m, "Table", "The transfer columns of a schedule.")
        .def(
            "__init__",
            [](Table* self, In<int32_t> step, In<int32_t> chunk, In<int32_t> src, In<int32_t> dst, In<uint8_t> op,
               In<int32_t> route, std::optional<In<int32_t>> src_slot, std::optional<In<int32_t>> dst_slot) {
                size_t rows = step.shape(0);
                bool same = chunk.shape(0) == rows && src.shape(0) == rows && dst.shape(0) == rows &&
                            op.shape(0) == rows && route.shape(0) == rows &&
                            src_slot.has_value() == dst_slot.has_value() &&
                            (!src_slot || (src_slot->shape(0) == rows && dst_slot->shape(0) == rows));
                if (!same) throw std::invalid_argument("columns differ in length");
                new (self) Table{step, chunk, src, dst, op, route, src_slot, dst_slot};
            },
            nb::arg("step"), nb::arg("chunk"), nb::arg("src"), nb::arg("dst"), nb::arg("op"), nb::arg("route"),
            nb::arg("src_slot").none(), nb::arg("dst_slot").none());
}

}  // namespace weft
