// Python half: src/weft/runtime/transport/connect.py opens it, arena_allocator.py hands out its arena.
#include "runtime/shared_memory.hpp"

#include <fcntl.h>
#include <linux/futex.h>
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstddef>
#include <cstring>
#include <fstream>
#include <new>
#include <stdexcept>
#include <string>
#include <system_error>
#include <utility>

#include "runtime/timing.hpp"

namespace weft::runtime {
namespace {

// The layout of the shared memory in one word: two builds that lay it out differently refuse each other's. Sizes and
// places are taken into account by themselves; `kLayoutVersion` is for a change of what a field means.
constexpr uint64_t kLayoutVersion = 2;

constexpr uint64_t layout_word() {
    uint64_t word = 0x57454654;  // "WEFT"
    const uint64_t parts[] = {
        kLayoutVersion,  sizeof(Board),          offsetof(Board, channel), sizeof(Channel), offsetof(Channel, peer),
        sizeof(Pair),    offsetof(Pair, notice), sizeof(Notice),           kMostLocal,      kChannels,
        Host::kRingBytes};
    for (uint64_t part : parts) word = (word ^ part) * 0x100000001b3;  // FNV-1a, a number at a time
    return word;
}
constexpr size_t kPage = 4096;
constexpr int kFenceMs = 2000;  // for the kernel to end a process

[[noreturn]] void fail(const char* what) { throw std::system_error(errno, std::generic_category(), what); }

// State of a thread, as in ps, and the number of the system call that it is in or has just left; -1: in none.
struct ThreadState {
    char state = '?';
    long call = -1;
};

ThreadState look_at(int pid, int thread) {
    ThreadState found;
    std::string folder = "/proc/" + std::to_string(pid) + "/task/" + std::to_string(thread);
    std::ifstream status(folder + "/stat");
    std::string line;
    // The name stands in brackets, and may contain some itself.
    if (std::getline(status, line) && line.rfind(')') + 2 < line.size()) found.state = line[line.rfind(')') + 2];
    std::ifstream call(folder + "/syscall");
    if (!(call >> found.call)) found.call = -1;
    return found;
}

}  // namespace

Host::Host(int rank, int ranks, size_t arena_bytes, bool crowded, bool readable)
    : rank_(rank), ranks_(ranks), crowded_(crowded), arena_bytes_(arena_bytes), members_(ranks) {
    if (ranks < 1 || ranks > kMostLocal || rank < 0 || rank >= ranks) throw std::invalid_argument("rank");
    file_ = Descriptor(memfd_create("weft", MFD_CLOEXEC));
    if (!file_) fail("memfd_create");
    size_t size = ring_offset(kChannels, 0) + arena_bytes;
    if (ftruncate(file_.get(), static_cast<off_t>(size)) != 0) fail("sizing shared memory");
    map(members_[rank], file_.get(), arena_bytes);
    members_[rank].pid = getpid();
    mine().layout.store(layout_word(), std::memory_order_release);
    // Where Yama restricts it, let the other ranks read this one's memory. Not having Yama is fine, too.
    if (readable) static_cast<void>(prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY, 0, 0, 0));
}

void Host::map(Member& member, int file, size_t arena_bytes) const {
    // Most of it is never touched: pages come as they are needed.
    size_t size = ring_offset(kChannels, 0) + arena_bytes;
    void* memory = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, file, 0);
    if (memory == MAP_FAILED) fail("mapping shared memory");
    member.memory = static_cast<std::byte*>(memory);
    member.size = size;
}

void Host::close() {
    if (!is_owner()) return;
    mine().closed.store(1, std::memory_order_release);
    for (int rank = 0; rank < ranks_; ++rank) {
        if (members_[rank].memory != nullptr) ring_doorbell(rank);
    }
    stop_.store(true);
    if (watcher_.joinable()) watcher_.join();
}

bool Host::is_owner() const { return members_[rank_].pid == getpid(); }

void Host::reset(int channel) {
    if (channel < 0 || channel >= kChannels) throw std::invalid_argument("channel");
    new (&mine().channel[channel]) Channel{};
}

Host::~Host() {
    close();
    if (!is_owner() && watcher_.joinable()) watcher_.detach();  // a child of fork has no such thread
    for (Member& member : members_) {
        if (member.memory != nullptr) munmap(member.memory, member.size);
    }
}

size_t Host::ring_offset(int channel, int to) const {
    size_t control = (sizeof(Board) + kPage - 1) / kPage * kPage;
    return control +
           (static_cast<size_t>(channel) * static_cast<size_t>(ranks_) + static_cast<size_t>(to)) * kRingBytes;
}

void Host::attach(int rank, int pid, int file, size_t arena_bytes) {
    if (rank < 0 || rank >= ranks_ || members_[rank].memory != nullptr) throw std::invalid_argument("rank");
    Member& member = members_[rank];
    // The process first: if it is gone and its number was given to another, the layout word below will not be there.
    member.pid = pid;
    member.pidfd = Descriptor(static_cast<int>(syscall(SYS_pidfd_open, pid, 0)));
    if (!member.pidfd) fail("pidfd_open");
    std::string path = "/proc/" + std::to_string(pid) + "/fd/" + std::to_string(file);
    Descriptor theirs(open(path.c_str(), O_RDWR | O_CLOEXEC));
    if (!theirs) fail("opening another rank's shared memory");
    off_t there = lseek(theirs.get(), 0, SEEK_END);
    if (there != static_cast<off_t>(ring_offset(kChannels, 0) + arena_bytes)) {
        throw std::runtime_error("another rank's shared memory has another size");
    }
    map(member, theirs.get(), arena_bytes);
    if (board(rank).layout.load(std::memory_order_acquire) != layout_word()) {
        throw std::runtime_error("another rank's shared memory is not Weft's, or of another build of it");
    }
    member.heard_ms = now_ms();
}

bool Host::can_read(int rank, uint64_t address, uint64_t expected) const {
    uint64_t found = 0;
    iovec here{&found, sizeof found}, there{reinterpret_cast<void*>(address), sizeof found};
    ssize_t read = process_vm_readv(members_[rank].pid, &here, 1, &there, 1, 0);
    return read == static_cast<ssize_t>(sizeof found) && found == expected;
}

void Host::ring_doorbell(int rank) const {
    Board& other = board(rank);
    // What the peer is to see was stored before: either it sees that when it looks once more before it sleeps, or this
    // rank sees here that it is about to.
    std::atomic_thread_fence(std::memory_order_seq_cst);
    if (other.sleeping.load(std::memory_order_relaxed) == 0) return;
    other.doorbell.fetch_add(1, std::memory_order_seq_cst);
    syscall(SYS_futex, &other.doorbell, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

uint32_t Host::announce_sleep() const {
    Board& own = mine();
    uint32_t rung = own.doorbell.load(std::memory_order_seq_cst);
    own.sleeping.fetch_add(1, std::memory_order_seq_cst);
    std::atomic_thread_fence(std::memory_order_seq_cst);  // before it looks once more, as in ring_doorbell
    return rung;
}

void Host::sleep(uint32_t announced, int64_t milliseconds) const {
    timespec span{milliseconds / 1000, milliseconds % 1000 * 1'000'000};
    syscall(SYS_futex, &mine().doorbell, FUTEX_WAIT, announced, &span, nullptr, 0);
}

void Host::retract_sleep() const { mine().sleeping.fetch_sub(1, std::memory_order_seq_cst); }

void Host::detach(const std::byte* begin, size_t bytes) {
    auto page = [](uint64_t address) { return address / kPage * kPage; };
    auto first = page(reinterpret_cast<uint64_t>(begin));
    size_t size = page(reinterpret_cast<uint64_t>(begin) + bytes + kPage - 1) - first;
    auto* place = reinterpret_cast<std::byte*>(first);
    std::lock_guard lock(detached_mutex_);
    void* pages = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (pages == MAP_FAILED) fail("memory in the place of what a frozen rank may write to");
    std::memcpy(pages, place, size);
    if (mremap(pages, size, size, MREMAP_MAYMOVE | MREMAP_FIXED, place) == MAP_FAILED) {
        fail("putting memory in the place of what a frozen rank may write to");
    }
    detached_.push_back({place, place + size});
    detachments_.fetch_add(1, std::memory_order_release);
}

bool Host::is_detached(const std::byte* begin, size_t bytes) const {
    std::lock_guard lock(detached_mutex_);
    return std::ranges::any_of(detached_,
                               [&](const Range& one) { return begin < one.end && one.begin < begin + bytes; });
}

void Host::fence(int rank, int thread) const {
    const Member& member = members_[rank];
    ThreadState found = look_at(member.pid, thread);
    // A signal stops a thread only on its way back from the kernel: then the call is over.
    if (found.state == 'T' && found.call == SYS_process_vm_writev) return;
    syscall(SYS_pidfd_send_signal, member.pidfd.get(), SIGKILL, nullptr, 0);
    pollfd end{member.pidfd.get(), POLLIN, 0};
    poll(&end, 1, kFenceMs);
}

}  // namespace weft::runtime
