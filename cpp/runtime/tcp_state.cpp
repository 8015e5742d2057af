// Apart from the rest because <linux/tcp.h>, which knows the newer fields, does not go together with <netinet/tcp.h>.
// Python half: src/weft/runtime/transport/connect.py.
#include "runtime/tcp_state.hpp"

#include <linux/tcp.h>
#include <sys/socket.h>

#include <cstddef>

namespace weft::runtime {

bool is_stuck(int socket, uint32_t milliseconds) {
    constexpr int kTcp = 6;     // IPPROTO_TCP
    constexpr int kRepeats = 3;  // less may be one packet, sent just now after a long silence
    tcp_info info{};
    socklen_t size = sizeof info;
    if (getsockopt(socket, kTcp, TCP_INFO, &info, &size) != 0) return false;
    if (info.tcpi_last_ack_recv < milliseconds) return false;
    if (info.tcpi_unacked > 0) return info.tcpi_retransmits >= kRepeats;
    bool knows_room = size >= offsetof(tcp_info, tcpi_snd_wnd) + sizeof info.tcpi_snd_wnd;
    return knows_room && info.tcpi_snd_wnd > 0 && info.tcpi_notsent_bytes > 0 && info.tcpi_probes >= kRepeats;
}

}  // namespace weft::runtime
