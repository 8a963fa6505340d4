// SPDX-License-Identifier: Apache-2.0
#include "sha256.h"

#include <algorithm>
#include <cstring>

namespace hspec_trt {
namespace {

constexpr std::size_t kBlock = 64;
constexpr std::size_t kLengthAt = 56;

constexpr std::array<uint32_t, 64> kRound{
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

constexpr uint32_t rotated(uint32_t value, int by) {
    return (value >> by) | (value << (32 - by));
}

}  // namespace

void Sha256::update(void const* data, std::size_t size) {
    auto const* bytes = static_cast<uint8_t const*>(data);
    std::size_t filled = size_ % kBlock;
    size_ += size;
    while (size > 0) {
        if (filled == 0 && size >= kBlock) {
            compress(bytes);
            bytes += kBlock;
            size -= kBlock;
            continue;
        }
        std::size_t const taken = std::min(size, kBlock - filled);
        std::memcpy(pending_.data() + filled, bytes, taken);
        filled += taken;
        bytes += taken;
        size -= taken;
        if (filled == kBlock) {
            compress(pending_.data());
            filled = 0;
        }
    }
}

std::string Sha256::hex() {
    uint64_t const bits = size_ * 8;
    uint8_t const one = 0x80;
    uint8_t const zero = 0;
    update(&one, 1);
    while (size_ % kBlock != kLengthAt) {
        update(&zero, 1);
    }
    std::array<uint8_t, 8> length{};
    for (std::size_t i = 0; i < length.size(); ++i) {
        length[i] = static_cast<uint8_t>(bits >> (8 * (7 - i)));
    }
    update(length.data(), length.size());
    std::string text;
    for (uint32_t const word : state_) {
        for (int shift = 28; shift >= 0; shift -= 4) {
            text += "0123456789abcdef"[(word >> shift) & 0xF];
        }
    }
    return text;
}

void Sha256::compress(uint8_t const* block) {
    std::array<uint32_t, 64> w{};
    for (std::size_t i = 0; i < 16; ++i) {
        uint8_t const* byte = block + 4 * i;
        w[i] = (uint32_t{byte[0]} << 24) | (uint32_t{byte[1]} << 16) | (uint32_t{byte[2]} << 8) | byte[3];
    }
    for (std::size_t i = 16; i < w.size(); ++i) {
        uint32_t const low = rotated(w[i - 15], 7) ^ rotated(w[i - 15], 18) ^ (w[i - 15] >> 3);
        uint32_t const high = rotated(w[i - 2], 17) ^ rotated(w[i - 2], 19) ^ (w[i - 2] >> 10);
        w[i] = w[i - 16] + low + w[i - 7] + high;
    }
    auto [a, b, c, d, e, f, g, h] = state_;
    for (std::size_t i = 0; i < w.size(); ++i) {
        uint32_t const mixE = rotated(e, 6) ^ rotated(e, 11) ^ rotated(e, 25);
        uint32_t const first = h + mixE + ((e & f) ^ (~e & g)) + kRound[i] + w[i];
        uint32_t const mixA = rotated(a, 2) ^ rotated(a, 13) ^ rotated(a, 22);
        uint32_t const second = mixA + ((a & b) ^ (a & c) ^ (b & c));
        h = g;
        g = f;
        f = e;
        e = d + first;
        d = c;
        c = b;
        b = a;
        a = first + second;
    }
    std::array<uint32_t, 8> const mixed{a, b, c, d, e, f, g, h};
    for (std::size_t i = 0; i < state_.size(); ++i) {
        state_[i] += mixed[i];
    }
}

}  // namespace hspec_trt
