// Over a socket that somebody has connected and authenticated. Frames follow each other without gaps:
//
//     at the start of an operation   opening: mark, sequence, fingerprint
//     for each task                  the elements, nothing else: both ends know what comes next and how long it is
//
// Sums are taken straight out of the staging buffer; what is only copied goes straight into place.
#include <poll.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <span>
#include <vector>

#include "link.hpp"
#include "tcp_state.hpp"

namespace weft::runtime {
namespace {

struct Opening {
    uint64_t mark, sequence, fingerprint;
};
constexpr uint64_t kMark = 0x6e65704f'74666577;  // "weftOpen"

class TcpLink final : public Link {
public:
    explicit TcpLink(int socket) : socket_(socket), room_(kStaging + 2 * kPage) {
        auto at = reinterpret_cast<uint64_t>(room_.data());
        staging_ = {room_.data() + (kPage / 2 - at) % kPage, kStaging};
    }

    void open(uint64_t fingerprint, const Operation& operation) override {
        opening_ = {kMark, opening_.sequence + 1, fingerprint};
        memory_ = &operation.memory;
        script_ = operation.script;
        opening_sent_ = 0;
        opened_ = false;
        left_ = 0;
        part_ = 0;
        within_ = 0;
        fresh_ = true;
    }

    // Reads first: what a peer said before it left is better news than that it left.
    Peer peer() override {
        if (!opened_ && !differs_) {
            while (end_ - begin_ < sizeof(Opening) && fill()) continue;
            if (end_ - begin_ >= sizeof(Opening)) {
                Opening theirs;
                std::memcpy(&theirs, staging_.data() + begin_, sizeof theirs);
                begin_ += sizeof theirs;
                differs_ = theirs.mark != kMark || theirs.sequence != opening_.sequence ||
                          theirs.fingerprint != opening_.fingerprint;
                opened_ = !differs_;
            }
        }
        if (opening_sent_ < sizeof opening_) send_opening();
        if (differs_) return Peer::differs;  // also when asked again: what it said is read only once
        if (gone_) return Peer::gone;
        return opened_ && opening_sent_ == sizeof opening_ ? Peer::ready : Peer::waiting;
    }

    short events() const override {
        return static_cast<short>((opened_ ? 0 : POLLIN) | (opening_sent_ < sizeof opening_ ? POLLOUT : 0));
    }
    bool gone() const override { return gone_; }
    bool stuck() const override { return is_stuck(socket_, kStuckMs); }

    bool send(const Task& task) override {
        auto bytes = static_cast<int64_t>(memory_->element);
        if (fresh_) {
            part_ = task.first_part;
            within_ = 0;
            fresh_ = false;
        }
        while (part_ < task.first_part + task.parts) {
            std::array<iovec, kVectors> pieces;
            size_t count = 0;
            int64_t skip = within_;
            for (uint32_t p = part_; p < task.first_part + task.parts && count < kVectors; ++p, skip = 0) {
                const Part& part = script_->parts[p];
                std::byte* here = memory_->region[static_cast<int>(part.here_in)] + part.here * bytes + skip;
                pieces[count++] = {here, static_cast<size_t>(part.elements * bytes - skip)};
            }
            msghdr message{};
            message.msg_iov = pieces.data();
            message.msg_iovlen = count;
            ssize_t sent = sendmsg(socket_, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
            if (sent < 0) {
                if (errno != EAGAIN && errno != EINTR) gone_ = true;
                return false;
            }
            advance(sent, bytes);
        }
        fresh_ = true;
        ++left_;
        return true;
    }

    uint64_t left() override { return left_; }

    bool receive(Sink& sink) override {
        auto bytes = static_cast<int64_t>(memory_->element);
        while (!sink.full()) {
            auto there = static_cast<int64_t>(end_ - begin_) / bytes;
            if (there > 0) {
                int64_t some = std::min(there, sink.left());
                sink.take(staging_.data() + begin_, some);
                begin_ += static_cast<size_t>(some * bytes);
                continue;
            }
            if (sink.copies() && end_ == begin_) {
                Sink::Stretch stretch = sink.next();
                auto room = static_cast<size_t>(std::min(stretch.elements, sink.left()) * bytes);
                ssize_t got = get(stretch.here, room);
                if (got <= 0) return false;
                // Half an element may have come; the rest of it goes through the staging buffer.
                auto whole = got / bytes;
                auto odd = static_cast<size_t>(got % bytes);
                begin_ = 0;
                end_ = odd;
                std::memcpy(staging_.data(), stretch.here + whole * bytes, odd);
                if (whole > 0) sink.skip(whole);
                continue;
            }
            if (!fill()) return false;
        }
        return true;
    }

    void flush() override {}
    bool quiet() override { return opening_sent_ == sizeof opening_; }

    // Closing a socket with unread data in it would make the peer forget what it has not read yet, such as what this
    // rank thought the operation was.
    bool farewell() override {
        if (!said_farewell_) shutdown(socket_, SHUT_WR);
        said_farewell_ = true;
        begin_ = end_ = 0;
        while (!gone_ && get(staging_.data(), staging_.size()) > 0) continue;
        return gone_;
    }

private:
    void send_opening() {
        const auto* raw = reinterpret_cast<const std::byte*>(&opening_);
        ssize_t sent = ::send(socket_, raw + opening_sent_, sizeof opening_ - opening_sent_, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (sent > 0) opening_sent_ += static_cast<size_t>(sent);
        if (sent < 0 && errno != EAGAIN && errno != EINTR) gone_ = true;
    }

    void advance(ssize_t sent, int64_t bytes) {
        while (sent > 0) {
            int64_t rest = script_->parts[part_].elements * bytes - within_;
            if (sent < rest) {
                within_ += sent;
                return;
            }
            sent -= rest;
            ++part_;
            within_ = 0;
        }
    }

    ssize_t get(std::byte* into, size_t room) {
        ssize_t got = recv(socket_, into, room, MSG_DONTWAIT);
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

    // Later than a silent peer is declared, so that who does not answer at all is not taken for a cut.
    static constexpr uint32_t kStuckMs = 6500;
    static constexpr uint64_t kPage = 4096;
    static constexpr size_t kStaging = 128 << 10;
    static constexpr size_t kVectors = 16;

    int socket_;
    Opening opening_{};
    const Memory* memory_ = nullptr;
    const Script* script_ = nullptr;
    size_t opening_sent_ = 0;
    bool opened_ = false, gone_ = false, differs_ = false, fresh_ = true, said_farewell_ = false;
    uint64_t left_ = 0;
    uint32_t part_ = 0;
    int64_t within_ = 0;  // bytes of the part that are sent
    std::vector<std::byte> room_;
    std::span<std::byte> staging_;  // begins amid a page: the kernel's buffers rarely do, and copying.hpp says the rest
    size_t begin_ = 0, end_ = 0;
};

}  // namespace

std::unique_ptr<Link> make_tcp_link(int socket) { return std::make_unique<TcpLink>(socket); }

}  // namespace weft::runtime
