// Between ranks of one machine, in one of three ways, chosen by where the *sender's* tensor lies:
// - in shared memory: the receiver reads it there;
// - private, and large, and the kernel permits it: the receiver reads it out of the sender's process;
// - else the sender copies it through a ring of bytes.
// A task that may be pushed is written by the sender to where the *receiver's* tensor lies, in the first two ways.
#include <sys/uio.h>

#include <algorithm>
#include <vector>

#include "copying.hpp"
#include "link.hpp"

namespace weft::runtime {
namespace {

enum class Way : uint8_t { shared, read, ring };

class LocalLink final : public Link {
public:
    LocalLink(Host& host, const LocalOptions& options) : host_(host), options_(options) {}

    void open(uint64_t fingerprint, const Operation& operation) override {
        ++sequence_;
        fingerprint_ = fingerprint;
        memory_ = &operation.memory;
        script_ = operation.script;
        opened_ = false;
        sent_from_ = own().ready.load(std::memory_order_relaxed);
        offered_ = fetched_ = 0;
        taken_from_ = own().consumed.load(std::memory_order_relaxed);
        taken_ = 0;
        ring_tasks_ = 0;
        within_ = 0;
        Notice& notice = own().notice[sequence_ & 1];
        notice.fingerprint = fingerprint;
        notice.shared = operation.shared;
        std::ranges::copy(operation.address, notice.address);
        out_way_ = way(notice);
        notice.sequence.store(sequence_, std::memory_order_release);
        host_.ring_bell(options_.peer);
    }

    Peer peer() override {
        if (opened_) return Peer::ready;
        const Notice& notice = back().notice[sequence_ & 1];
        if (notice.sequence.load(std::memory_order_acquire) != sequence_) {
            bool gone = theirs().closed.load(std::memory_order_acquire) != 0 ||
                        theirs().failed.load(std::memory_order_acquire) != 0;
            return gone ? Peer::gone : Peer::waiting;
        }
        if (notice.fingerprint != fingerprint_) return Peer::differs;
        in_way_ = way(notice);
        std::ranges::copy(notice.address, address_);
        shared_ = notice.shared;
        opened_ = true;
        own().met.store(sequence_, std::memory_order_release);
        host_.ring_bell(options_.peer);
        return Peer::ready;
    }

    bool send(const Task& task) override {
        if (task.pushed && in_way_ != Way::ring) {
            if (!push(task)) return false;
        } else if (out_way_ == Way::ring) {
            return send_ring(task);
        } else {
            fetched_ = offered_ + 1;
        }
        ++offered_;
        changed_ = true;
        return true;
    }

    uint64_t left() override {
        if (out_way_ == Way::ring) return ring_tasks_;
        // Negative while the peer still empties the ring of an earlier operation.
        auto taken = static_cast<int64_t>(back().consumed.load(std::memory_order_acquire) - sent_from_);
        // What was pushed has left when all that the peer fetches has.
        if (taken >= static_cast<int64_t>(fetched_)) return offered_;
        return static_cast<uint64_t>(std::max<int64_t>(0, taken));
    }

    bool receive(Sink& sink) override {
        bool pushed = sink.task().pushed && out_way_ != Way::ring;
        if (in_way_ == Way::ring && !pushed) {
            if (!receive_ring(sink)) return false;
        } else {
            auto there = static_cast<int64_t>(back().ready.load(std::memory_order_acquire) - taken_from_);
            if (there <= static_cast<int64_t>(taken_)) return false;
            while (!pushed && !sink.full()) read_some(sink);
        }
        ++taken_;
        changed_ = true;
        return true;
    }

    void flush() override {
        if (!changed_) return;
        changed_ = false;
        own().ready.store(sent_from_ + offered_, std::memory_order_release);
        own().consumed.store(taken_from_ + taken_, std::memory_order_release);
        untold_ = true;
    }

    void wake() override {
        if (untold_) host_.ring_bell(options_.peer);
        untold_ = false;
    }

    // A rank whose data went through the ring could be two operations further, and overwrite the notice, before the
    // peer has read it.
    bool quiet() override { return back().met.load(std::memory_order_acquire) >= sequence_; }

    bool untouched() override { return back().pushing.load(std::memory_order_seq_cst) == 0; }

private:
    Channel& theirs() const { return host_.board(options_.peer).channel[options_.channel]; }
    Pair& own() const { return host_.mine().channel[options_.channel].peer[options_.peer]; }
    Pair& back() const { return theirs().peer[host_.rank()]; }

    // The same answer at both ends: what it depends on stands in the sender's notice or was agreed on before.
    Way way(const Notice& notice) const {
        if ((notice.shared & 1) != 0) return Way::shared;
        return options_.can_read && (notice.shared & kLarge) != 0 ? Way::read : Way::ring;
    }

    void read_some(Sink& sink) {
        Sink::Stretch stretch = sink.next();
        auto region = static_cast<int>(stretch.there_in);
        auto bytes = static_cast<int64_t>(memory_->element);
        uint64_t address = address_[region] + static_cast<uint64_t>(stretch.there * bytes);
        if ((shared_ >> region & 1) != 0) {
            sink.take(host_.memory(options_.peer) + address, stretch.elements);
            return;
        }
        if (sink.copies()) {
            move(process_vm_readv, stretch.here, address, static_cast<size_t>(stretch.elements * bytes));
            sink.skip(stretch.elements);
            return;
        }
        // Small enough to stay in the cache between being read and being added. It begins where its source does within a
        // page: copying.hpp says why.
        bounce_.resize(kBounce + 2 * kPage);
        auto begin = reinterpret_cast<uint64_t>(bounce_.data());
        std::byte* into = bounce_.data() + (address - begin) % kPage;
        int64_t some = std::min<int64_t>(stretch.elements, kBounce / bytes);
        move(process_vm_readv, into, address, static_cast<size_t>(some * bytes));
        sink.take(into, some);
    }

    // Writes a task to the peer's memory. A peer that has given up may use it for something else: it says so first and
    // then waits for `pushing` to end, so one of the two sees the other.
    bool push(const Task& task) {
        own().pushing.store(1, std::memory_order_seq_cst);
        bool wanted = theirs().failed.load(std::memory_order_seq_cst) == 0;
        auto bytes = static_cast<int64_t>(memory_->element);
        for (uint32_t p = task.first_part; wanted && p < task.first_part + task.parts; ++p) {
            const Part& part = script_->parts[p];
            std::byte* here = memory_->region[static_cast<int>(part.here_in)] + part.here * bytes;
            auto region = static_cast<int>(part.there_in);
            uint64_t address = address_[region] + static_cast<uint64_t>(part.there * bytes);
            if ((shared_ >> region & 1) != 0) {
                copy_bytes(host_.memory(options_.peer) + address, here, static_cast<size_t>(part.elements * bytes));
            } else {
                move(process_vm_writev, here, address, static_cast<size_t>(part.elements * bytes));
            }
        }
        own().pushing.store(0, std::memory_order_release);
        return wanted;
    }

    // Between this process and the peer's, either way.
    template <typename Call>
    void move(Call call, std::byte* mine, uint64_t address, size_t bytes) {
        while (bytes > 0) {
            iovec here{mine, bytes}, there{reinterpret_cast<void*>(address), bytes};
            ssize_t moved = call(host_.pid(options_.peer), &here, 1, &there, 1, 0);
            if (moved <= 0) {
                own().pushing.store(0, std::memory_order_release);
                throw Unreadable{};
            }
            mine += moved;
            address += static_cast<uint64_t>(moved);
            bytes -= static_cast<size_t>(moved);
        }
    }

    bool send_ring(const Task& task) {
        std::byte* ring = host_.ring(options_.channel, host_.rank(), options_.peer);
        auto bytes = static_cast<int64_t>(memory_->element);
        while (within_ < task.elements) {
            uint64_t head = own().head.load(std::memory_order_relaxed);
            uint64_t used = head - back().tail.load(std::memory_order_acquire);
            size_t at = head % Host::kRingBytes;
            size_t room = std::min(Host::kRingBytes - used, Host::kRingBytes - at);
            int64_t some = std::min(task.elements - within_, static_cast<int64_t>(room) / bytes);
            some = std::min<int64_t>(some, kPiece / bytes);
            if (some == 0) return false;
            copy_out(task, within_, some, ring + at);
            within_ += some;
            own().head.store(head + static_cast<uint64_t>(some * bytes), std::memory_order_release);
            changed_ = true;
            if (some * bytes == kPiece) {  // large ones: let the other start
                flush();
                wake();
            }
        }
        align(own().head);
        within_ = 0;
        ++ring_tasks_;
        ++offered_;  // so that both ends count the same tasks, whichever way they went
        changed_ = true;  // again: the last piece may have been told already
        return true;
    }

    // Elements `from` .. `from + count` of a task, gathered.
    void copy_out(const Task& task, int64_t from, int64_t count, std::byte* into) const {
        auto bytes = static_cast<int64_t>(memory_->element);
        for (uint32_t p = task.first_part; count > 0; ++p) {
            const Part& part = script_->parts[p];
            if (from >= part.elements) {
                from -= part.elements;
                continue;
            }
            int64_t some = std::min(part.elements - from, count);
            const std::byte* here = memory_->region[static_cast<int>(part.here_in)] + (part.here + from) * bytes;
            copy_bytes(into, here, static_cast<size_t>(some * bytes));
            into += some * bytes;
            count -= some;
            from = 0;
        }
    }

    bool receive_ring(Sink& sink) {
        std::byte* ring = host_.ring(options_.channel, options_.peer, host_.rank());
        auto bytes = static_cast<int64_t>(memory_->element);
        while (!sink.full()) {
            uint64_t tail = own().tail.load(std::memory_order_relaxed);
            uint64_t there = back().head.load(std::memory_order_acquire) - tail;
            size_t at = tail % Host::kRingBytes;
            size_t whole = std::min<size_t>(there, Host::kRingBytes - at);
            int64_t some = std::min(sink.left(), static_cast<int64_t>(whole) / bytes);
            if (some == 0) return false;
            sink.take(ring + at, some);
            own().tail.store(tail + static_cast<uint64_t>(some * bytes), std::memory_order_release);
            changed_ = true;
        }
        align(own().tail);
        return true;
    }

    // Each task begins on a whole word, so that no element is ever torn between the ring's end and its beginning.
    static void align(std::atomic<uint64_t>& position) {
        uint64_t at = position.load(std::memory_order_relaxed);
        position.store((at + kWord - 1) / kWord * kWord, std::memory_order_release);
    }


    static constexpr uint64_t kPage = 4096;
    static constexpr int64_t kBounce = 128 << 10;
    static constexpr int64_t kPiece = 256 << 10;
    static constexpr uint64_t kWord = 8;

    Host& host_;
    LocalOptions options_;
    const Memory* memory_ = nullptr;
    const Script* script_ = nullptr;
    uint64_t sequence_ = 0, fingerprint_ = 0;
    bool opened_ = false, changed_ = false, untold_ = false;
    Way out_way_ = Way::ring, in_way_ = Way::ring;
    uint64_t sent_from_ = 0, offered_ = 0, fetched_ = 0, taken_from_ = 0, taken_ = 0, ring_tasks_ = 0;
    int64_t within_ = 0;
    uint64_t address_[kRegions] = {};
    uint64_t shared_ = 0;
    std::vector<std::byte> bounce_;
};

}  // namespace

std::unique_ptr<Link> make_local_link(Host& host, const LocalOptions& options) {
    return std::make_unique<LocalLink>(host, options);
}

}  // namespace weft::runtime
