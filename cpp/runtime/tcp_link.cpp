// A link over a socket that is connected and authenticated. Frames follow each other without gaps:
//
//     at the start of an operation   opening: mark, sequence, fingerprint, checksum
//     for each task                  the elements, then, unless that is turned off, their checksum
//
// Both ends know what comes next and how long it is. A checksum covers the number of the operation and of the task as well as
// the elements: so a frame that was repeated, left out or taken for another does not fit.
//
// Sums are taken straight out of the staging buffer; what is only copied goes straight into place. Either happens before the
// checksum is known: an operation whose data was changed fails, and what it has left in the array is undefined.
//
// Python half: src/weft/runtime/transport/connect.py.
#include <poll.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <span>
#include <vector>

#include "runtime/crc32c.hpp"
#include "runtime/link.hpp"
#include "runtime/tcp_state.hpp"

namespace weft::runtime {
namespace {

struct Opening {
    uint64_t mark, sequence, fingerprint;
    uint32_t spare, checksum;

    uint32_t compute() const { return crc32c(0, this, offsetof(Opening, checksum)); }
};
constexpr uint64_t kMark = 0x6e65704f'74666577;  // "weftOpen"

class TcpLink final : public Link {
public:
    TcpLink(int socket, bool checksums) : socket_(socket), checksums_(checksums), room_(kStaging + 2 * kPage) {
        auto at = reinterpret_cast<uint64_t>(room_.data());
        staging_ = {room_.data() + (kPage / 2 - at) % kPage, kStaging};
    }

    // Each end of a socket touches its own memory only.
    void open(uint64_t fingerprint, const Operation& operation, const Reach& /*reach*/) override {
        opening_ = {kMark, opening_.sequence + 1, fingerprint, 0, 0};
        opening_.checksum = opening_.compute();
        memory_ = &operation.memory;
        script_ = operation.script;
        opening_sent_ = 0;
        opened_ = false;
        left_ = taken_ = 0;
        fresh_out_ = fresh_in_ = true;
    }

    // Reads first: what a peer said before it left explains more than that it left.
    Peer peer() override {
        if (!opened_ && !differs_ && !corrupt_) {
            while (end_ - begin_ < sizeof(Opening) && fill()) continue;
            if (end_ - begin_ >= sizeof(Opening)) {
                Opening theirs;
                std::memcpy(&theirs, staging_.data() + begin_, sizeof theirs);
                begin_ += sizeof theirs;
                corrupt_ = theirs.mark != kMark || theirs.checksum != theirs.compute();
                differs_ =
                    !corrupt_ && (theirs.sequence != opening_.sequence || theirs.fingerprint != opening_.fingerprint);
                opened_ = !differs_ && !corrupt_;
            }
        }
        if (opening_sent_ < sizeof opening_) send_opening();
        if (corrupt_) return Peer::corrupt;
        if (differs_) return Peer::differs;  // also when asked again: what it said is read only once
        if (gone_) return Peer::gone;
        return opened_ && opening_sent_ == sizeof opening_ ? Peer::ready : Peer::waiting;
    }

    short events() const override {
        return static_cast<short>((opened_ ? 0 : POLLIN) | (opening_sent_ < sizeof opening_ ? POLLOUT : 0));
    }
    bool gone() const override { return gone_; }
    bool corrupt() const override { return corrupt_; }
    bool stuck() const override { return is_stuck(socket_, kStuckMs); }

    bool send(const Task& task) override {
        auto bytes = static_cast<int64_t>(memory_->element);
        if (fresh_out_) begin_task(task);
        uint32_t last = task.first_part + task.parts;
        while (part_ < last || trailer_sent_ < trailer_size()) {
            std::array<iovec, kVectors> pieces;
            size_t count = 0;
            int64_t skip = within_;
            for (uint32_t p = part_; p < last && count < kVectors - 1; ++p, skip = 0) {
                const Part& part = script_->parts[p];
                std::byte* here = memory_->region[static_cast<int>(part.here_in)] + part.here * bytes + skip;
                pieces[count++] = {here, static_cast<size_t>(part.elements * bytes - skip)};
            }
            if (last - part_ < kVectors && trailer_sent_ < trailer_size()) {
                auto* raw = reinterpret_cast<std::byte*>(&trailer_);
                pieces[count++] = {raw + trailer_sent_, trailer_size() - trailer_sent_};
            }
            msghdr message{};
            message.msg_iov = pieces.data();
            message.msg_iovlen = count;
            ssize_t sent = sendmsg(socket_, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
            if (sent < 0) {
                if (errno != EAGAIN && errno != EINTR) gone_ = true;
                return false;
            }
            advance(sent, bytes, last);
        }
        fresh_out_ = true;
        ++left_;
        return true;
    }

    uint64_t left() override { return left_; }

    bool receive(Sink& sink) override {
        if (corrupt_) return false;
        if (fresh_in_) checksum_in_ = seed(taken_);
        fresh_in_ = false;
        if (!receive_elements(sink) || !receive_trailer()) return false;
        fresh_in_ = true;
        ++taken_;
        return true;
    }

    void flush() override {}
    bool quiet() override { return opening_sent_ == sizeof opening_; }

    // Closing a socket with unread data in it would make the peer forget what it has not read yet, such as what this
    // rank thought the operation was.
    bool shut_down() override {
        if (!has_shut_down_) shutdown(socket_, SHUT_WR);
        has_shut_down_ = true;
        begin_ = end_ = 0;
        while (!gone_ && get(staging_.data(), staging_.size()) > 0) continue;
        return gone_;
    }

private:
    size_t trailer_size() const { return checksums_ ? sizeof trailer_ : 0; }

    // Where the checksum of a task begins: after the numbers of its operation and of itself.
    uint32_t seed(uint64_t task) const {
        uint64_t numbers[] = {opening_.sequence, task};
        return checksums_ ? crc32c(0, numbers, sizeof numbers) : 0;
    }

    void begin_task(const Task& task) {
        fresh_out_ = false;
        part_ = task.first_part;
        within_ = 0;
        trailer_sent_ = 0;
        trailer_ = seed(left_);
        if (!checksums_) return;
        for (uint32_t p = part_; p < task.first_part + task.parts; ++p) {
            const Part& part = script_->parts[p];
            auto bytes = static_cast<int64_t>(memory_->element);
            const std::byte* here = memory_->region[static_cast<int>(part.here_in)] + part.here * bytes;
            trailer_ = crc32c(trailer_, here, static_cast<size_t>(part.elements * bytes));
        }
    }

    bool receive_elements(Sink& sink) {
        auto bytes = static_cast<int64_t>(memory_->element);
        while (!sink.full()) {
            auto there = static_cast<int64_t>(end_ - begin_) / bytes;
            if (there > 0) {
                int64_t some = std::min(there, sink.left());
                add_up(staging_.data() + begin_, some * bytes);
                sink.take(staging_.data() + begin_, some);
                begin_ += static_cast<size_t>(some * bytes);
                continue;
            }
            if (!(sink.copies() && end_ == begin_ ? receive_into_place(sink) : fill())) return false;
        }
        return true;
    }

    // Reads elements to where they belong, and with the last of a task its checksum, which saves a call.
    bool receive_into_place(Sink& sink) {
        auto bytes = static_cast<int64_t>(memory_->element);
        Sink::Extent extent = sink.next();
        auto room = static_cast<size_t>(std::min(extent.elements, sink.left()) * bytes);
        bool last = extent.elements >= sink.left();
        ssize_t got = get(extent.here, room, last ? trailer_size() : 0);
        if (got <= 0) return false;
        auto placed = std::min<int64_t>(got, static_cast<int64_t>(room));
        begin_ = 0;
        end_ = static_cast<size_t>(got - placed);
        // Half an element may have come; the rest of it goes through the staging buffer.
        auto whole = placed / bytes;
        if (auto odd = static_cast<size_t>(placed % bytes); odd > 0) {
            std::memcpy(staging_.data(), extent.here + whole * bytes, odd);
            end_ = odd;
        }
        add_up(extent.here, whole * bytes);
        if (whole > 0) sink.skip(whole);
        return true;
    }

    bool receive_trailer() {
        if (!checksums_) return true;
        while (end_ - begin_ < sizeof trailer_) {
            if (!fill()) return false;
        }
        uint32_t theirs;
        std::memcpy(&theirs, staging_.data() + begin_, sizeof theirs);
        begin_ += sizeof theirs;
        corrupt_ = theirs != checksum_in_;
        return !corrupt_;
    }

    void add_up(const std::byte* data, int64_t bytes) {
        if (checksums_) checksum_in_ = crc32c(checksum_in_, data, static_cast<size_t>(bytes));
    }

    void send_opening() {
        const auto* raw = reinterpret_cast<const std::byte*>(&opening_);
        ssize_t sent =
            ::send(socket_, raw + opening_sent_, sizeof opening_ - opening_sent_, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (sent > 0) opening_sent_ += static_cast<size_t>(sent);
        if (sent < 0 && errno != EAGAIN && errno != EINTR) gone_ = true;
    }

    void advance(ssize_t sent, int64_t bytes, uint32_t last) {
        while (sent > 0 && part_ < last) {
            int64_t rest = script_->parts[part_].elements * bytes - within_;
            if (sent < rest) {
                within_ += sent;
                return;
            }
            sent -= rest;
            ++part_;
            within_ = 0;
        }
        trailer_sent_ += static_cast<size_t>(sent);
    }

    // Reads into a place, and what is beyond that into the staging buffer, which is empty then.
    ssize_t get(std::byte* into, size_t room, size_t beyond = 0) {
        iovec pieces[] = {{into, room}, {staging_.data(), beyond}};
        msghdr message{};
        message.msg_iov = pieces;
        message.msg_iovlen = beyond > 0 ? 2 : 1;
        ssize_t got = recvmsg(socket_, &message, MSG_DONTWAIT);
        if (got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR)) gone_ = true;
        return got;
    }

    // Gets more into the staging buffer; what is left in it moves to the front.
    bool fill() {
        if (begin_ > 0) {
            std::memmove(staging_.data(), staging_.data() + begin_, end_ - begin_);
            end_ -= begin_;
            begin_ = 0;
        }
        ssize_t got = get(staging_.data() + end_, staging_.size() - end_);
        if (got <= 0) return false;
        end_ += static_cast<size_t>(got);
        return true;
    }

    // Longer than until a silent peer is declared lost, so that a dead peer is not taken for a cut connection.
    static constexpr uint32_t kStuckMs = 6500;
    static constexpr uint64_t kPage = 4096;
    static constexpr size_t kStaging = 128 << 10;
    static constexpr size_t kVectors = 16;

    int socket_;
    bool checksums_;
    Opening opening_{};
    const Memory* memory_ = nullptr;
    const Script* script_ = nullptr;
    size_t opening_sent_ = 0;
    bool opened_ = false, gone_ = false, differs_ = false, corrupt_ = false, has_shut_down_ = false;
    bool fresh_out_ = true, fresh_in_ = true;  // the next task in this direction has not begun
    uint64_t left_ = 0, taken_ = 0;
    uint32_t part_ = 0;
    int64_t within_ = 0;  // bytes of the part that are sent
    uint32_t trailer_ = 0, checksum_in_ = 0;
    size_t trailer_sent_ = 0;
    std::vector<std::byte> room_;
    // It begins amid a page: the kernel's buffers rarely do, and copy_bytes.hpp says the rest.
    std::span<std::byte> staging_;
    size_t begin_ = 0, end_ = 0;
};

}  // namespace

std::unique_ptr<Link> make_tcp_link(int socket, bool checksums) { return std::make_unique<TcpLink>(socket, checksums); }

}  // namespace weft::runtime
