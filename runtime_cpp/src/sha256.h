// SPDX-License-Identifier: Apache-2.0
// SHA-256 (FIPS 180-4).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

namespace hspec_trt {

class Sha256 {
  public:
    void update(void const* data, std::size_t size);
    // The digest of what was given so far, as 64 hex digits. Ends the use of the object.
    std::string hex();

  private:
    void compress(uint8_t const* block);

    std::array<uint32_t, 8> state_{0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                   0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
    std::array<uint8_t, 64> pending_{};
    uint64_t size_ = 0;  // bytes
};

}  // namespace hspec_trt
