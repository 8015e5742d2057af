// Between ranks of one machine, in one of three ways, chosen by where the *sender's* tensor lies:
// - in shared memory, and not small: the receiver reads it there;
// - private, and large, and the kernel permits it: the receiver reads it out of the sender's process;
// - else the sender copies it through a ring of bytes.
// A task that may be pushed is written by the sender to where the *receiver's* tensor lies, in the first two ways.
//
// Python half: src/weft/runtime/transport/connect.py.
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "runtime/copy_bytes.hpp"
#include "runtime/link.hpp"

namespace weft::runtime {
namespace {

enum class CopyMethod : uint8_t { shared, read, ring };

class LocalLink final : public Link {
public:
    LocalLink(Host& host, const LocalOptions& options) : host_(host), options_(options) {}

    void open(uint64_t fingerprint, const Operation& operation, const Reach& reach) override {
        static thread_local const int thread = gettid();
        thread_ = thread;
        ++sequence_;
        fingerprint_ = fingerprint;
        memory_ = &operation.memory;
        script_ = operation.script;
        reach_ = &reach;
        opened_ = false;
        sent_from_ = own().ready.load(std::memory_order_relaxed);
        offered_ = fetched_ = 0;
        taken_from_ = own().consumed.load(std::memory_order_relaxed);
        taken_ = 0;
        within_ = 0;
        Notice& notice = own().notice[sequence_ & 1];
        notice.fingerprint = fingerprint;
        notice.shared = operation.shared;
        std::ranges::copy(operation.address, notice.address);
        std::ranges::copy(operation.bytes, notice.bytes);
        send_method_ = copy_method(notice);
        if (send_method_ == CopyMethod::ring && operation.bytes[0] <= kFewBytes) start_over();
        notice.start = own().head.load(std::memory_order_relaxed);
    }

    void announce() override {
        Notice& notice = own().notice[sequence_ & 1];
        notice.head = own().head.load(std::memory_order_relaxed);
        notice.sequence.store(sequence_, std::memory_order_release);
        untold_ = true;
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
        receive_method_ = copy_method(notice);
        if (receive_method_ != CopyMethod::ring && !has_all(notice)) return Peer::differs;
        std::ranges::copy(notice.address, address_);
        shared_ = notice.shared;
        known_head_ = notice.head;
        if (notice.start > own().tail.load(std::memory_order_relaxed)) {
            own().tail.store(notice.start, std::memory_order_release);
        }
        opened_ = true;
        return Peer::ready;
    }

    bool send(const Task& task) override {
        if (task.pushed && receive_method_ != CopyMethod::ring) {
            if (!push(task)) return false;
        } else if (send_method_ == CopyMethod::ring) {
            return send_ring(task);
        } else {
            fetched_ = offered_ + 1;
        }
        ++offered_;
        changed_ = awaited_ = true;
        return true;
    }

    uint64_t left() override {
        // Whatever was offered is in the ring, or in the peer's memory if it was pushed.
        if (send_method_ == CopyMethod::ring) return offered_;
        // Negative while the peer still empties the ring of an earlier operation.
        auto taken = static_cast<int64_t>(back().consumed.load(std::memory_order_acquire) - sent_from_);
        // What was pushed has left when all that the peer fetches has.
        if (taken >= static_cast<int64_t>(fetched_)) return offered_;
        return static_cast<uint64_t>(std::max<int64_t>(0, taken));
    }

    bool receive(Sink& sink) override {
        bool pushed = sink.task().pushed && send_method_ != CopyMethod::ring;
        if (receive_method_ == CopyMethod::ring && !pushed) {
            if (!receive_ring(sink)) return false;
        } else {
            auto there = static_cast<int64_t>(back().ready.load(std::memory_order_acquire) - taken_from_);
            if (there <= static_cast<int64_t>(taken_)) return false;
            while (!pushed && !sink.full()) read_some(sink);
            // A peer that has given up uses its memory for something else: what was read since then is not what it sent. It says
            // so first, and this rank looks afterwards, however long it was frozen in between.
            std::atomic_thread_fence(std::memory_order_acquire);
            if (!pushed && theirs().failed.load(std::memory_order_acquire) != 0) return false;
            awaited_ = true;
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
        untold_ = std::exchange(awaited_, false) || untold_;
    }

    void wake() override {
        if (untold_) host_.ring_doorbell(options_.peer);
        untold_ = false;
    }

    // The peer empties the ring once it has read this rank's notice and agrees.
    bool sends_ahead() const override { return send_method_ == CopyMethod::ring; }

    Writing writing() const override { return back().writing.load(std::memory_order_seq_cst); }
    int writer() const override { return back().writer.load(std::memory_order_relaxed); }

private:
    Channel& theirs() const { return host_.board(options_.peer).channel[options_.channel]; }
    Pair& own() const { return host_.mine().channel[options_.channel].peer[options_.peer]; }
    Pair& back() const { return theirs().peer[host_.rank()]; }

    // The same answer at both ends: what it depends on stands in the sender's notice or was agreed on before.
    CopyMethod copy_method(const Notice& notice) const {
        if ((notice.shared & kExposed) != 0) return CopyMethod::shared;
        return options_.can_read && (notice.shared & kLarge) != 0 ? CopyMethod::read : CopyMethod::ring;
    }

    // Whether the peer's regions reach as far as this rank will reach into them.
    bool has_all(const Notice& notice) const {
        for (int region = 0; region < kRegions; ++region) {
            auto elements = static_cast<uint64_t>(reach_->elements[region]);
            if (elements > notice.bytes[region] / memory_->element) return false;
        }
        return true;
    }

    void read_some(Sink& sink) {
        Sink::Extent extent = sink.next();
        auto region = static_cast<int>(extent.there_in);
        auto bytes = static_cast<int64_t>(memory_->element);
        uint64_t address = address_[region] + static_cast<uint64_t>(extent.there * bytes);
        if ((shared_ >> region & 1) != 0) {
            sink.take(host_.memory(options_.peer) + address, extent.elements);
            return;
        }
        if (sink.copies()) {
            read(extent.here, address, static_cast<size_t>(extent.elements * bytes));
            sink.skip(extent.elements);
            return;
        }
        // Small enough to stay in the cache between being read and being added. It begins where its source does within a
        // page: copy_bytes.hpp says why.
        bounce_.resize(kBounce + 2 * kPage);
        auto begin = reinterpret_cast<uint64_t>(bounce_.data());
        std::byte* into = bounce_.data() + (address - begin) % kPage;
        int64_t some = std::min<int64_t>(extent.elements, kBounce / bytes);
        read(into, address, static_cast<size_t>(some * bytes));
        sink.take(into, some);
    }

    // Writes a task to the peer's memory.
    bool push(const Task& task) {
        auto bytes = static_cast<int64_t>(memory_->element);
        for (uint32_t p = task.first_part; p < task.first_part + task.parts; ++p) {
            const Part& part = script_->parts[p];
            std::byte* here = memory_->region[static_cast<int>(part.here_in)] + part.here * bytes;
            auto region = static_cast<int>(part.there_in);
            uint64_t address = address_[region] + static_cast<uint64_t>(part.there * bytes);
            auto size = static_cast<size_t>(part.elements * bytes);
            bool shared = (shared_ >> region & 1) != 0;
            while (size > 0) {
                // A frozen process stops between two instructions, but not within a call of the kernel: each such call is
                // announced by itself.
                size_t some = shared ? size : std::min(size, kForeignPiece);
                if (!announce_write(shared ? Writing::shared : Writing::foreign)) return false;
                if (shared) {
                    copy_bytes(host_.memory(options_.peer) + address, here, some);
                } else {
                    some = move_some(process_vm_writev, here, address, some);
                }
                own().writing.store(Writing::none, std::memory_order_release);
                if (some == 0) throw Unreadable{};
                here += some;
                address += some;
                size -= some;
            }
        }
        return true;
    }

    // A peer that has given up may use its memory for something else: it says so first and then waits until nobody writes, so
    // one of the two sees the other.
    bool announce_write(Writing kind) {
        own().writer.store(thread_, std::memory_order_relaxed);
        own().writing.store(kind, std::memory_order_seq_cst);
        if (theirs().failed.load(std::memory_order_seq_cst) == 0) return true;
        own().writing.store(Writing::none, std::memory_order_release);
        return false;
    }

    // One call of the kernel between this process and the peer's, either way; 0 if it refuses.
    template <typename Call>
    size_t move_some(Call call, std::byte* mine, uint64_t address, size_t bytes) {
        iovec here{mine, bytes}, there{reinterpret_cast<void*>(address), bytes};
        ssize_t moved = call(host_.pid(options_.peer), &here, 1, &there, 1, 0);
        return moved > 0 ? static_cast<size_t>(moved) : 0;
    }

    void read(std::byte* into, uint64_t address, size_t bytes) {
        while (bytes > 0) {
            size_t some = move_some(process_vm_readv, into, address, bytes);
            if (some == 0) throw Unreadable{};
            into += some;
            address += some;
            bytes -= some;
        }
    }

    // Moves on to the ring's beginning if it is empty, so that small operations use the same few lines of the caches again and
    // again; larger ones are faster with lines that the peer's cache has given up. The peer follows when it reads where the
    // operation begins.
    void start_over() {
        uint64_t head = own().head.load(std::memory_order_relaxed);
        if (head % Host::kRingBytes < kHotBytes) return;
        see_tail();
        if (known_tail_ < head) return;
        head += Host::kRingBytes - head % Host::kRingBytes;
        own().head.store(head, std::memory_order_relaxed);
        known_tail_ = head;
    }

    // The peer's own count is behind this rank's knowledge until it has followed to the ring's beginning.
    void see_tail() { known_tail_ = std::max(known_tail_, back().tail.load(std::memory_order_acquire)); }

    bool send_ring(const Task& task) {
        std::byte* ring = host_.ring(options_.channel, host_.rank(), options_.peer);
        auto bytes = static_cast<int64_t>(memory_->element);
        while (within_ < task.elements) {
            uint64_t head = own().head.load(std::memory_order_relaxed);
            size_t at = head % Host::kRingBytes;
            int64_t wanted = std::min(task.elements - within_, kPiece / bytes);
            int64_t some = std::min(wanted, room(head, at) / bytes);
            if (some < wanted) {
                see_tail();
                some = std::min(wanted, room(head, at) / bytes);
            }
            if (some == 0) return false;
            copy_out(task, within_, some, ring + at);
            within_ += some;
            own().head.store(head + static_cast<uint64_t>(some * bytes), std::memory_order_release);
            changed_ = awaited_ = true;
            if (some * bytes == kPiece) {  // large ones: let the other start
                flush();
                wake();
            }
        }
        align(own().head);
        within_ = 0;
        ++offered_;  // so that both ends count the same tasks, whichever way they went
        changed_ = awaited_ = true;  // again: the last piece may have been told already
        return true;
    }

    // Bytes of the ring that are free, and in one piece, as far as the peer was seen to empty it. Less than none where the ring
    // was full when the last task was rounded up to a whole word.
    int64_t room(uint64_t head, size_t at) const {
        auto free = static_cast<int64_t>(Host::kRingBytes - (head - known_tail_));
        return std::clamp<int64_t>(free, 0, static_cast<int64_t>(Host::kRingBytes - at));
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
            size_t at = tail % Host::kRingBytes;
            int64_t wanted = sink.left();
            int64_t some = std::min(wanted, there(tail, at) / bytes);
            if (some < wanted) {
                known_head_ = back().head.load(std::memory_order_acquire);
                some = std::min(wanted, there(tail, at) / bytes);
            }
            if (some == 0) return false;
            // The peer waits for room only if there is none. If it ran out of room since this rank looked, the rest of what it sent
            // is found later, and the ring full then.
            awaited_ = awaited_ || known_head_ - tail > Host::kRingBytes / 4;
            sink.take(ring + at, some);
            own().tail.store(tail + static_cast<uint64_t>(some * bytes), std::memory_order_release);
            changed_ = true;
        }
        align(own().tail);
        return true;
    }

    // Bytes that have come and are in one piece, as far as this rank has seen. Less than none while the sender has yet to round
    // up the end of the task before, as this rank has done.
    int64_t there(uint64_t tail, size_t at) const {
        auto come = static_cast<int64_t>(known_head_ - tail);
        return std::clamp<int64_t>(come, 0, static_cast<int64_t>(Host::kRingBytes - at));
    }

    // Each task begins on a whole word, so that no element is ever torn between the ring's end and its beginning.
    static void align(std::atomic<uint64_t>& position) {
        uint64_t at = position.load(std::memory_order_relaxed);
        position.store((at + kWord - 1) / kWord * kWord, std::memory_order_release);
    }

    static constexpr uint64_t kPage = 4096;
    static constexpr int64_t kBounce = 128 << 10;
    static constexpr size_t kForeignPiece = 1 << 20;
    static constexpr int64_t kPiece = 256 << 10;
    static constexpr size_t kHotBytes = 32 << 10;
    static constexpr uint64_t kWord = 8;

    Host& host_;
    LocalOptions options_;
    const Memory* memory_ = nullptr;
    const Script* script_ = nullptr;
    const Reach* reach_ = nullptr;
    uint64_t sequence_ = 0, fingerprint_ = 0;
    // `awaited_`: something that the peer may wait for has changed; `untold_`: and was stored where the peer looks.
    bool opened_ = false, changed_ = false, awaited_ = false, untold_ = false;
    CopyMethod send_method_ = CopyMethod::ring, receive_method_ = CopyMethod::ring;
    int thread_ = 0;
    uint64_t sent_from_ = 0, offered_ = 0, fetched_ = 0, taken_from_ = 0, taken_ = 0;
    int64_t within_ = 0;
    uint64_t known_tail_ = 0, known_head_ = 0;  // of the rings to and from the peer, as last read
    uint64_t address_[kRegions] = {};
    uint64_t shared_ = 0;
    std::vector<std::byte> bounce_;
};

}  // namespace

std::unique_ptr<Link> make_local_link(Host& host, const LocalOptions& options) {
    return std::make_unique<LocalLink>(host, options);
}

}  // namespace weft::runtime
