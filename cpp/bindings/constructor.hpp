// Constructors of structs that Python makes, for bindings only.
#pragma once

#include <new>

namespace weft {

// The constructor of an aggregate, which takes its fields in their order.
template <typename Struct, typename... Fields>
struct Constructor {
    static void init(Struct* self, Fields... fields) { new (self) Struct{fields...}; }
};

}  // namespace weft
