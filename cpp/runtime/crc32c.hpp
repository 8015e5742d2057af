// CRC-32C (Castagnoli), the checksum of iSCSI, SCTP and ext4, for data that crosses a network.
#pragma once

#include <cstddef>
#include <cstdint>

namespace weft::runtime {

// Continues a checksum over more bytes; a new one starts with 0. crc32c(crc32c(0, a), b) is that of a followed by b.
uint32_t crc32c(uint32_t crc, const void* data, size_t bytes);

// The same without the processor's own instruction; the tests compare the two.
uint32_t crc32c_portable(uint32_t crc, const void* data, size_t bytes);

}  // namespace weft::runtime
