// SPDX-License-Identifier: Apache-2.0
// Launch geometry shared by the launchers; the formulas are those of plugins/kernels/geometry.py
// (tests/plugins/launchers compares).
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "kernel_table.h"

namespace hspec_trt {

constexpr std::size_t kWorkspaceAlign = 256;

constexpr int64_t ceilDiv(int64_t value, int64_t unit) {
    return (value + unit - 1) / unit;
}

constexpr std::size_t alignUp(std::size_t bytes) {
    return (bytes + kWorkspaceAlign - 1) / kWorkspaceAlign * kWorkspaceAlign;
}

// Upper bound of the positions that one row reads from its pages.
constexpr int64_t longestRange(int64_t maxPages, int64_t pageSize, int64_t window, int64_t maxQuery) {
    int64_t const whole = maxPages * pageSize;
    return window > 0 ? std::min(whole, window + maxQuery) : whole;
}

// Parts into which the key range of each row is cut, so that a few rows fill the GPU.
constexpr int64_t numSplits(int64_t rows, int64_t numKvHeads, int64_t longest, int64_t multiprocessors) {
    int64_t const programs = std::max<int64_t>(1, rows * numKvHeads);
    int64_t const wanted = std::min<int64_t>(2 * multiprocessors, kMaxSplitPrograms) / programs;
    return std::max<int64_t>(1, std::min({wanted, int64_t{kMaxSplits}, ceilDiv(longest, kSplitTokens)}));
}

// The least power of two that holds `queryRows` (tokens x grouped heads), within kMinTile and kMaxTile.
constexpr int32_t tileRows(int64_t queryRows) {
    int32_t tile = kMinTile;
    while (tile < std::min<int64_t>(queryRows, kMaxTile)) {
        tile *= 2;
    }
    return tile;
}

// Most query tokens of a row that one tile can hold, whichever tiles are compiled: TensorRT keeps the size of the
// workspace from the build, and the library that an engine runs with may hold other tiles.
constexpr int64_t widestQuery(int64_t group, int64_t longestQuery) {
    return std::min(kMaxTile / group, longestQuery);
}

// Float32 elements of partial_out and of partial_lse, whatever numSplits gives for any number of rows: rows that are
// not split write no partial results.
struct SplitWorkspace {
    int64_t partialOut = 0;
    int64_t partialLse = 0;
    // partial_out lies first, partial_lse behind it.
    constexpr std::size_t lseOffset() const { return alignUp(4 * static_cast<std::size_t>(partialOut)); }
    constexpr std::size_t bytes() const { return lseOffset() + alignUp(4 * static_cast<std::size_t>(partialLse)); }
};

constexpr SplitWorkspace splitWorkspace(int64_t group, int64_t maxQuery, int64_t headDim) {
    int64_t const slots = kMaxSplitPrograms * group * maxQuery;
    return {slots * headDim, slots};
}

constexpr int64_t sampleChunks(int64_t vocabSize) {
    return ceilDiv(vocabSize, kSampleChunk);
}

}  // namespace hspec_trt
