// The functions with which each file of this folder adds its part to its module.
#pragma once

#include <nanobind/nanobind.h>

namespace weft {

// To weft._core.
void bind_bounds(nanobind::module_& m);
void bind_forest(nanobind::module_& m);
void bind_multitree(nanobind::module_& m);
void bind_packets(nanobind::module_& m);
void bind_schedule(nanobind::module_& m);
void bind_simulation(nanobind::module_& m);
void bind_topology(nanobind::module_& m);
void bind_verification(nanobind::module_& m);
void bind_workflow(nanobind::module_& m);

// To weft._runtime.
void bind_kernels(nanobind::module_& m);
void bind_operations(nanobind::module_& m);
void bind_worker_queue(nanobind::module_& m);

}  // namespace weft
