#include "host.hpp"

#include <fcntl.h>
#include <linux/futex.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <climits>
#include <new>
#include <stdexcept>
#include <string>
#include <system_error>
#include <utility>

namespace weft::runtime {
namespace {

constexpr uint64_t kMagic = 0x57454654'00000002;
constexpr size_t kPage = 4096;
constexpr int64_t kBeatMs = 100;

[[noreturn]] void fail(const char* what) { throw std::system_error(errno, std::generic_category(), what); }

int64_t now_ms() {
    using namespace std::chrono;
    return duration_cast<milliseconds>(steady_clock::now().time_since_epoch()).count();
}

std::byte* map(int file, size_t size) {
    // Most of it is never touched: pages come as they are needed.
    void* memory = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, file, 0);
    if (memory == MAP_FAILED) fail("mapping shared memory");
    return static_cast<std::byte*>(memory);
}

}  // namespace

Host::Host(int rank, int ranks, size_t arena_bytes, bool crowded)
    : rank_(rank), ranks_(ranks), crowded_(crowded), arena_bytes_(arena_bytes), members_(ranks) {
    if (ranks < 1 || ranks > kMostLocal || rank < 0 || rank >= ranks) throw std::invalid_argument("rank");
    file_ = memfd_create("weft", MFD_CLOEXEC);
    if (file_ < 0) fail("memfd_create");
    if (ftruncate(file_, static_cast<off_t>(size())) != 0) fail("sizing shared memory");
    members_[rank].memory = map(file_, size());
    members_[rank].pid = getpid();
    mine().magic.store(kMagic, std::memory_order_release);
    // Where Yama restricts it, let the other ranks read this one's memory. Not having Yama is fine, too.
    static_cast<void>(prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY, 0, 0, 0));
}

void Host::close() {
    if (!is_owner()) return;
    mine().closed.store(1, std::memory_order_release);
    for (int rank = 0; rank < ranks_; ++rank) {
        if (members_[rank].memory != nullptr) ring_bell(rank);
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
        if (member.memory != nullptr) munmap(member.memory, size());
        if (member.pidfd >= 0) ::close(member.pidfd);
    }
    if (file_ >= 0) ::close(file_);
}

size_t Host::ring_offset(int channel, int to) const {
    size_t control = (sizeof(Board) + kPage - 1) / kPage * kPage;
    return control + (static_cast<size_t>(channel) * static_cast<size_t>(ranks_) + static_cast<size_t>(to)) * kRingBytes;
}

void Host::attach(int rank, int pid, int file) {
    if (rank < 0 || rank >= ranks_ || members_[rank].memory != nullptr) throw std::invalid_argument("rank");
    Member& member = members_[rank];
    // The process first: if it is gone and its number was given to another, the magic below will not be there.
    member.pid = pid;
    member.pidfd = static_cast<int>(syscall(SYS_pidfd_open, pid, 0));
    if (member.pidfd < 0) fail("pidfd_open");
    std::string path = "/proc/" + std::to_string(pid) + "/fd/" + std::to_string(file);
    int theirs = open(path.c_str(), O_RDWR | O_CLOEXEC);
    if (theirs < 0) fail("opening another rank's shared memory");
    off_t there = lseek(theirs, 0, SEEK_END);
    if (there != static_cast<off_t>(size())) {
        ::close(theirs);
        throw std::runtime_error("another rank's shared memory has another size");
    }
    member.memory = map(theirs, size());
    ::close(theirs);
    if (board(rank).magic.load(std::memory_order_acquire) != kMagic) {
        throw std::runtime_error("another rank's shared memory is not Weft's");
    }
    member.heard_ms = now_ms();
}

bool Host::can_read(int rank, uint64_t address, uint64_t expected) const {
    uint64_t found = 0;
    iovec here{&found, sizeof found}, there{reinterpret_cast<void*>(address), sizeof found};
    ssize_t read = process_vm_readv(members_[rank].pid, &here, 1, &there, 1, 0);
    return read == static_cast<ssize_t>(sizeof found) && found == expected;
}

void Host::ring_bell(int rank) const {
    Board& other = board(rank);
    other.bell.fetch_add(1, std::memory_order_seq_cst);
    if (other.sleeping.load(std::memory_order_seq_cst) != 0) {
        syscall(SYS_futex, &other.bell, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
    }
}

void Host::sleep(uint32_t heard, int64_t milliseconds) const {
    Board& own = mine();
    timespec span{milliseconds / 1000, milliseconds % 1000 * 1'000'000};
    own.sleeping.fetch_add(1, std::memory_order_seq_cst);
    syscall(SYS_futex, &own.bell, FUTEX_WAIT, heard, &span, nullptr, 0);
    own.sleeping.fetch_sub(1, std::memory_order_seq_cst);
}

void Host::start_watch(int64_t frozen_after_ms, std::vector<int32_t> rank_of, int32_t job_ranks) {
    if (rank_of.size() != members_.size() || job_ranks < ranks_) throw std::invalid_argument("rank_of");
    for (int32_t rank : rank_of) {
        if (rank < 0 || rank >= job_ranks) throw std::invalid_argument("rank_of");
    }
    rank_of_ = std::move(rank_of);
    lost_ = std::vector<std::atomic<int64_t>>(static_cast<size_t>(job_ranks));
    watcher_ = std::thread([this, frozen_after_ms] { watch(frozen_after_ms); });
}

// Beats, and listens to the others' beats; a thread of its own, so that neither Python nor a long sum delays it.
void Host::watch(int64_t frozen_after_ms) {
    std::vector<pollfd> polled;
    std::vector<int> whose;
    for (int rank = 0; rank < ranks_; ++rank) {
        if (members_[rank].pidfd < 0) continue;
        polled.push_back({members_[rank].pidfd, POLLIN, 0});
        whose.push_back(rank);
    }
    int64_t last = now_ms();
    while (!stop_.load()) {
        mine().heartbeat.fetch_add(1, std::memory_order_relaxed);
        int woken = poll(polled.data(), polled.size(), kBeatMs);
        int64_t now = now_ms();
        for (size_t i = 0; i < polled.size() && woken > 0; ++i) {
            if (polled[i].revents == 0) continue;
            if (board(whose[i]).closed.load(std::memory_order_acquire) == 0) declare(rank_of_[whose[i]], false);
            polled[i].fd = -1;  // a dead process stays readable for ever
        }
        // If this process itself was held up, nobody else's silence means anything.
        bool held_up = now - last > frozen_after_ms / 2;
        last = now;
        for (int rank : whose) {
            Member& member = members_[rank];
            uint64_t beat = board(rank).heartbeat.load(std::memory_order_relaxed);
            bool left = board(rank).closed.load(std::memory_order_acquire) != 0;
            if (beat != member.beat || held_up || left) {
                member.beat = beat;
                member.heard_ms = now;
            } else if (now - member.heard_ms > frozen_after_ms) {
                declare(rank_of_[rank], true);
            }
        }
    }
}

void Host::declare(int32_t rank, bool frozen) {
    int64_t none = 0;
    if (lost_[rank].compare_exchange_strong(none, now_ms() * 2 + (frozen ? 1 : 0))) ring_bell(rank_);
}

Host::Cut Host::cut() const {
    std::lock_guard lock(cut_mutex_);
    return cut_;
}

void Host::declare_cut(int32_t one, int32_t other, int32_t lane) {
    Cut found = cut();
    found.lower = std::min(one, other);
    found.higher = std::max(one, other);
    found.lane = lane;
    hear_of_cut(found);
}

void Host::hear_of_cut(const Cut& cut) {
    std::lock_guard lock(cut_mutex_);
    if (cut.times_mended == cut_.times_mended && !cut_.seen()) cut_ = cut;
}

void Host::mend() {
    std::lock_guard lock(cut_mutex_);
    cut_ = {.times_mended = cut_.times_mended + 1};
}

Host::Loss Host::loss(int32_t rank) const {
    int64_t lost = lost_[rank].load(std::memory_order_acquire);
    return {lost / 2, lost % 2 == 1};
}

}  // namespace weft::runtime
