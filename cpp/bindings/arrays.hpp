// numpy arrays in and out, for bindings only.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <cstdint>
#include <span>
#include <vector>

namespace weft {

namespace nb = nanobind;

template <typename T>
using In = nb::ndarray<const T, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

template <typename T>
using Out = nb::ndarray<nb::numpy, T, nb::ndim<1>>;

template <typename T>
std::span<const T> view(const In<T>& array) {
    return {array.data(), array.shape(0)};
}

// Hands a vector's memory to numpy without copying it.
template <typename T, typename Allocator>
Out<T> to_numpy(std::vector<T, Allocator>&& values) {
    using Values = std::vector<T, Allocator>;
    auto* owned = new Values(std::move(values));
    nb::capsule keeper(owned, [](void* p) noexcept { delete static_cast<Values*>(p); });
    return Out<T>(owned->data(), {owned->size()}, keeper);
}

}  // namespace weft
