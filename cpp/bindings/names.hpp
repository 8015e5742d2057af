// Names of types and operations, for bindings only. std::invalid_argument for any other.
#pragma once

#include <string_view>

#include "runtime/kernels.hpp"

namespace weft {

runtime::DType dtype_named(std::string_view name);
runtime::ReduceOp op_named(std::string_view name);

}  // namespace weft
