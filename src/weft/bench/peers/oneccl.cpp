// A few C functions over oneCCL's C++ interface, compiled when oneCCL is measured.
// Each returns null, or what went wrong.

#include <cstring>
#include <memory>
#include <oneapi/ccl.hpp>
#include <string>

namespace {

std::string problem;
std::shared_ptr<ccl::kvs> store;
std::unique_ptr<ccl::communicator> world;

template <class Work>
const char* attempt(const Work& work) {
    try {
        work();
        return nullptr;
    } catch (const std::exception& error) {
        problem = error.what();
        return problem.c_str();
    }
}

}  // namespace

extern "C" {

// Bytes of an address.
std::size_t address_bytes() { return sizeof(ccl::kvs::address_type); }

// Where the ranks meet: made by rank 0, which writes it to `address`.
const char* announce(char* address) {
    return attempt([&] {
        ccl::init();
        store = ccl::create_main_kvs();
        const auto made = store->get_address();
        std::memcpy(address, made.data(), made.size());
    });
}

const char* join(const char* address, int rank, int ranks) {
    return attempt([&] {
        ccl::init();
        if (!store) {
            ccl::kvs::address_type place;
            std::memcpy(place.data(), address, place.size());
            store = ccl::create_kvs(place);
        }
        world = std::make_unique<ccl::communicator>(ccl::create_communicator(ranks, rank, store));
    });
}

const char* all_reduce(const void* source, void* target, std::size_t count, int dtype, int op) {
    return attempt(
        [&] { ccl::allreduce(source, target, count, ccl::datatype(dtype), ccl::reduction(op), *world).wait(); });
}

const char* reduce_scatter(const void* source, void* target, std::size_t count, int dtype, int op) {
    return attempt(
        [&] { ccl::reduce_scatter(source, target, count, ccl::datatype(dtype), ccl::reduction(op), *world).wait(); });
}

const char* all_gather(const void* source, void* target, std::size_t count, int dtype) {
    return attempt([&] { ccl::allgather(source, target, count, ccl::datatype(dtype), *world).wait(); });
}

const char* broadcast(void* target, std::size_t count, int dtype) {
    return attempt([&] { ccl::broadcast(target, count, ccl::datatype(dtype), 0, *world).wait(); });
}

const char* barrier() {
    return attempt([&] { ccl::barrier(*world).wait(); });
}

const char* version() {
    static const std::string text = ccl::get_library_version().full;
    return text.c_str();
}
}
