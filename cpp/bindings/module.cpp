// The module weft._core, which has no need of Linux; weft._runtime is in runtime.cpp. Only the files of this folder see
// Python: they turn arrays and names into calls and nothing more. Callers in src/weft have checked ranges; the bindings
// check only what would crash otherwise.
#include "bindings/module.hpp"

#include "bindings/arrays.hpp"
#include "common/work_limit.hpp"

NB_MODULE(_core, m) {
    using namespace weft;
    m.doc() = "Weft's native half: what Python would be too slow for.";
    // Arrays in shared memory outlive the interpreter where users keep tensors of them.
    nb::set_leak_warnings(false);
    // Of weft._runtime too: both are in one domain of nanobind, and so share types and the translation of exceptions.
    nb::exception<TooMany>(m, "TooMany");
    m.def("version", [] { return nb::str(WEFT_VERSION); }, "Return the version this extension was built as.");

    bind_topology(m);
    bind_schedule(m);  // before what takes its Table
    bind_bounds(m);
    bind_forest(m);
    bind_multitree(m);
    bind_packets(m);
    bind_simulation(m);
    bind_verification(m);
    bind_workflow(m);
}
