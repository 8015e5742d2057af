// A link over a socket that is connected and authenticated. Frames follow each other without gaps:
//
//     at the start of an operation   opening: mark, sequence, fingerprint, checksum
//     for each task                  header: its number in the queue, checksum; the elements; and, unless that is turned
//                                    off, a trailer: their checksum
//
// Both ends know how long each task is. A checksum covers the numbers of the operation, of the frame and of the task as well
// as the elements: so a frame that was repeated, left out or taken for another does not fit.
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
#include <optional>
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
constexpr uint64_t kMark = 0x326e704f'74666577;  // "weftOpn2"

struct Header {
    uint32_t number, checksum;
};

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
        while (header_sent_ < sizeof header_ || part_ < last || trailer_sent_ < trailer_size()) {
            std::array<iovec, kVectors> pieces;
            size_t count = 0;
            if (header_sent_ < sizeof header_) {
                auto* raw = reinterpret_cast<std::byte*>(&header_);
                pieces[count++] = {raw + header_sent_, sizeof header_ - header_sent_};
            }
            int64_t skip = within_;
            uint32_t p = part_;
            for (; p < last && count < kVectors - 1; ++p, skip = 0) {
                const Part& part = script_->parts[p];
                std::byte* here = memory_->region[static_cast<int>(part.here_in)] + part.here * bytes + skip;
                pieces[count++] = {here, static_cast<size_t>(part.elements * bytes - skip)};
            }
            if (p == last && trailer_sent_ < trailer_size()) {
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
    bool in_order() const override { return false; }

    std::optional<uint32_t> arriving(Sink* guess) override {
        if (corrupt_) return std::nullopt;
        if (!fresh_in_) return arriving_;
        size_t placed = guess != nullptr && end_ == begin_ ? receive_with_header(*guess) : 0;
        while (end_ - begin_ < sizeof(Header)) {
            if (!fill()) return std::nullopt;
        }
        Header header;
        std::memcpy(&header, staging_.data() + begin_, sizeof header);
        begin_ += sizeof header;
        corrupt_ = header.checksum != seed(taken_, header.number);
        if (corrupt_) return std::nullopt;
        arriving_ = header.number;
        checksum_in_ = header.checksum;
        fresh_in_ = false;
        if (placed > 0) settle(*guess, placed);
        return arriving_;
    }

    void distrust() override { corrupt_ = true; }

    bool receive(Sink& sink) override {
        if (corrupt_ || !receive_elements(sink) || !receive_trailer()) return false;
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
        while (!gone_ && fill()) begin_ = end_ = 0;
        return gone_;
    }

private:
    size_t trailer_size() const { return checksums_ ? sizeof trailer_ : 0; }

    // Where the checksum of a task begins: after the numbers of its operation, of its frame and of itself.
    uint32_t seed(uint64_t frame, uint64_t task) const {
        uint64_t numbers[] = {opening_.sequence, frame, task};
        return crc32c(0, numbers, sizeof numbers);
    }

    void begin_task(const Task& task) {
        fresh_out_ = false;
        part_ = task.first_part;
        within_ = 0;
        header_sent_ = trailer_sent_ = 0;
        header_ = {task.number, seed(left_, task.number)};
        trailer_ = header_.checksum;
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

    // Reads a header, and what follows it to where the likely task goes: how many bytes of it came.
    size_t receive_with_header(Sink& guess) {
        auto bytes = static_cast<int64_t>(memory_->element);
        Sink::Extent extent = guess.next();
        size_t room = std::min(static_cast<size_t>(extent.elements * bytes), kGuessed);
        std::byte* behind = staging_.data() + sizeof(Header);
        bool last = room == static_cast<size_t>(guess.left() * bytes);
        iovec pieces[] = {{staging_.data(), sizeof(Header)},
                          {extent.here, room},
                          {behind, last ? trailer_size() + sizeof(Header) : 0}};
        ssize_t got = get(pieces);
        begin_ = end_ = 0;
        if (got <= 0) return 0;
        auto came = static_cast<size_t>(got);
        size_t placed = std::min(room, came - std::min(came, sizeof(Header)));
        end_ = came - placed;
        return placed;
    }

    // Behind a header, so many bytes lie where the likely task goes: they stay there if it is the one that came.
    void settle(Sink& guess, size_t placed) {
        std::byte* here = guess.next().here;
        std::byte* rest = staging_.data() + begin_;
        auto bytes = static_cast<int64_t>(memory_->element);
        auto whole = static_cast<int64_t>(placed) / bytes;
        size_t kept = guess.task().number == arriving_ ? static_cast<size_t>(whole * bytes) : 0;
        if (kept > 0) {
            add_up(here, static_cast<int64_t>(kept));
            guess.skip(whole);
        }
        std::memmove(rest + (placed - kept), rest, end_ - begin_);
        std::memcpy(rest, here + kept, placed - kept);
        end_ += placed - kept;
    }

    // Reads elements to where they belong, and with the last of a task its checksum and the next header, which saves calls.
    bool receive_into_place(Sink& sink) {
        auto bytes = static_cast<int64_t>(memory_->element);
        Sink::Extent extent = sink.next();
        auto room = static_cast<size_t>(std::min(extent.elements, sink.left()) * bytes);
        bool last = extent.elements >= sink.left();
        iovec pieces[] = {{extent.here, room}, {staging_.data(), last ? trailer_size() + sizeof(Header) : 0}};
        ssize_t got = get(pieces);
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
        auto of_header = std::min<ssize_t>(sent, static_cast<ssize_t>(sizeof header_ - header_sent_));
        header_sent_ += static_cast<size_t>(of_header);
        sent -= of_header;
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

    ssize_t get(std::span<iovec> pieces) {
        msghdr message{};
        message.msg_iov = pieces.data();
        message.msg_iovlen = pieces.size();
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
        iovec pieces[] = {{staging_.data() + end_, staging_.size() - end_}};
        ssize_t got = get(pieces);
        if (got <= 0) return false;
        end_ += static_cast<size_t>(got);
        return true;
    }

    // Longer than until a silent peer is declared lost, so that a dead peer is not taken for a cut connection.
    static constexpr uint32_t kStuckMs = 6500;
    static constexpr uint64_t kPage = 4096;
    static constexpr size_t kStaging = 128 << 10;
    static constexpr size_t kGuessed = kStaging - 64;  // so that it fits there, with a header and what follows
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
    Header header_{};  // of the task that is being sent
    uint32_t trailer_ = 0, checksum_in_ = 0, arriving_ = 0;
    size_t header_sent_ = 0, trailer_sent_ = 0;
    std::vector<std::byte> room_;
    // It begins amid a page: the kernel's buffers rarely do, and copy_bytes.hpp says the rest.
    std::span<std::byte> staging_;
    size_t begin_ = 0, end_ = 0;
};

}  // namespace

std::unique_ptr<Link> make_tcp_link(int socket, bool checksums) { return std::make_unique<TcpLink>(socket, checksums); }

}  // namespace weft::runtime
