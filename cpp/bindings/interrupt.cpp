// Ctrl-C in long loops; a part of both modules.
#include <nanobind/nanobind.h>

#include "common/work_limit.hpp"

namespace weft {

void check_interrupt() {
    nanobind::gil_scoped_acquire acquire;
    if (PyErr_CheckSignals() != 0) throw nanobind::python_error();
}

}  // namespace weft
