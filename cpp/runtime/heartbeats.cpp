// Python half: src/weft/runtime/transport/heartbeats.py.
#include "runtime/heartbeats.hpp"

#include <poll.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstddef>
#include <utility>

#include "runtime/crc32c.hpp"
#include "runtime/timing.hpp"

namespace weft::runtime {
namespace {

constexpr int64_t kLookMs = 50;  // how long a loss that was seen on this machine may wait to be told

}  // namespace

uint32_t Heartbeats::Message::compute() const { return crc32c(0, this, offsetof(Message, checksum)); }

Heartbeats::Heartbeats(std::shared_ptr<Host> host, const std::vector<int32_t>& sockets, int64_t suspect_after_ms,
                       int64_t silent_after_ms)
    : host_(std::move(host)),
      suspect_after_ms_(suspect_after_ms),
      silent_after_ms_(silent_after_ms),
      losses_sent_(sockets.size()),
      suspected_(sockets.size()) {
    for (int32_t rank = 0; rank < static_cast<int32_t>(sockets.size()); ++rank) {
        if (sockets[rank] >= 0) connections_.push_back({sockets[rank], rank, now_ms()});
    }
    // Rank 0 has a connection to every other rank, and every other rank one to rank 0.
    own_rank_ = host_->own_job_rank();
    thread_ = std::thread([this] { run(); });
}

Heartbeats::~Heartbeats() { close(); }

void Heartbeats::close() {
    if (!host_->is_owner()) {
        if (thread_.joinable()) thread_.detach();
        return;
    }
    stop_.store(true);
    if (thread_.joinable()) thread_.join();
}

void Heartbeats::run() {
    std::vector<pollfd> polled;
    for (const Connection& connection : connections_) polled.push_back({connection.socket, POLLIN, 0});
    int64_t last = now_ms(), next_beat = last;
    while (!stop_.load()) {
        if (now_ms() >= next_beat) {
            send_to_all({Kind::beat});
            next_beat = now_ms() + kHeartbeatMs;
        }
        send_losses();
        send_suspects();
        send_cut();
        send_reports();
        poll(polled.data(), polled.size(), kLookMs);
        int64_t now = now_ms();
        // If this process itself was held up, the silence of the others means nothing.
        bool held_up = now - last > silent_after_ms_ / 2, attentive = now - last < suspect_after_ms_ / 2;
        last = now;
        for (size_t i = 0; i < connections_.size(); ++i) {
            Connection& connection = connections_[i];
            if (polled[i].fd < 0) continue;
            if (held_up) connection.heard_ms = now;
            if (polled[i].revents != 0) connection.heard_ms = now;
            bool open = polled[i].revents == 0 || receive(connection);
            if (!open) polled[i].fd = connection.socket = -1;
            if (connection.left) continue;
            if (!open) host_->declare(connection.rank, false);
            int64_t silent = now - connection.heard_ms;
            if (attentive) host_->suspect(connection.rank, silent > suspect_after_ms_ ? silent : 0);
            if (silent > silent_after_ms_) host_->declare(connection.rank, true);
        }
    }
    send_losses();
    send_reports();
    send_to_all({Kind::left});
}

bool Heartbeats::receive(Connection& connection) {
    for (;;) {
        auto* into = reinterpret_cast<std::byte*>(&connection.message) + connection.have;
        ssize_t got = recv(connection.socket, into, sizeof connection.message - connection.have, MSG_DONTWAIT);
        if (got < 0) return errno == EAGAIN || errno == EINTR;
        if (got == 0) return false;
        connection.have += static_cast<size_t>(got);
        if (connection.have < sizeof connection.message) continue;
        connection.have = 0;
        handle(connection);
    }
}

void Heartbeats::handle(Connection& connection) {
    const Message& message = connection.message;
    if (message.checksum != message.compute()) return;
    if (message.kind == Kind::left) connection.left = true;
    auto ranks = static_cast<int32_t>(losses_sent_.size());
    const Host::Cut& cut = message.cut;
    bool between_ranks = 0 <= cut.lower && cut.lower < cut.higher && cut.higher < ranks && cut.connection >= 0;
    if (message.kind == Kind::cut && between_ranks) host_->record_cut(cut);
    if (message.kind == Kind::report) take_report(connection.rank, message.report);
    if (message.rank < 0 || message.rank >= ranks) return;
    if (message.kind == Kind::lost || message.kind == Kind::frozen)
        host_->declare(message.rank, message.kind == Kind::frozen);
    if (message.kind == Kind::silent) host_->suspect(message.rank, suspect_after_ms_);
    if (message.kind == Kind::heard) host_->suspect(message.rank, 0);
}

void Heartbeats::send_to_all(Message message) {
    message.checksum = message.compute();
    for (Connection& connection : connections_) {
        // What does not fit at once is for a peer that has not read for a long time: it is past being told.
        if (connection.socket < 0) continue;
        ssize_t sent = send(connection.socket, &message, sizeof message, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (sent > 0 && sent < static_cast<ssize_t>(sizeof message)) shutdown(connection.socket, SHUT_WR);
    }
}

// Only rank 0 does: it has a connection to every rank.
void Heartbeats::send_suspects() {
    if (connections_.empty() || connections_.front().rank == 0) return;
    for (int32_t rank = 0; rank < static_cast<int32_t>(suspected_.size()); ++rank) {
        uint8_t silent = host_->silent_ms(rank) > 0 ? 1 : 0;
        if (suspected_[rank] == silent) continue;
        send_to_all({silent != 0 ? Kind::silent : Kind::heard, rank});
        suspected_[rank] = silent;
    }
}

// Only rank 0 speaks for others.
void Heartbeats::take_report(int32_t from, const Host::RankReport& report) {
    auto ranks = static_cast<int32_t>(losses_sent_.size());
    bool known = 0 <= report.teller && report.teller < ranks && -1 <= report.other && report.other < ranks;
    bool fits =
        0 <= report.channel && report.channel < kChannels && report.status <= static_cast<uint32_t>(Status::corrupt);
    if (known && fits && report.teller != own_rank_ && (from == 0 || from == report.teller))
        host_->record_report(report);
}

// Rank 0 forwards the reports of all ranks.
void Heartbeats::send_reports() {
    for (const Host::RankReport& report : host_->new_reports(reports_sent_)) {
        if (own_rank_ == 0 || report.teller == own_rank_) send_to_all({.kind = Kind::report, .report = report});
    }
}

void Heartbeats::send_cut() {
    Host::Cut cut = host_->cut();
    if (!cut.seen() || cuts_sent_ > cut.times_mended) return;
    send_to_all({.kind = Kind::cut, .cut = cut});
    cuts_sent_ = cut.times_mended + 1;
}

// Rank 0 tells all ranks, every other rank tells rank 0.
void Heartbeats::send_losses() {
    for (int32_t rank = 0; rank < static_cast<int32_t>(losses_sent_.size()); ++rank) {
        Host::Loss loss = host_->loss(rank);
        if (losses_sent_[rank] != 0 || loss.when_ms == 0) continue;
        send_to_all({loss.frozen ? Kind::frozen : Kind::lost, rank});
        losses_sent_[rank] = 1;
    }
}

}  // namespace weft::runtime
