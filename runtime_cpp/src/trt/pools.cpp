// SPDX-License-Identifier: Apache-2.0
#include "trt/pools.h"

#include <utility>

namespace hspec_trt::trt {

PagePools::PagePools(Cuda const& cuda, std::vector<Pool> pools, bool aliased)
    : cuda_(cuda), pools_(std::move(pools)), copies_(aliased ? 1 : 2) {}

int64_t PagePools::pageBytes() const {
    int64_t bytes = 0;
    for (Pool const& pool : pools_) {
        bytes += pool.pageBytes;
    }
    return bytes * static_cast<int64_t>(copies_);
}

void PagePools::allocate(int32_t numPages) {
    buffers_.clear();
    numPages_ = numPages;
    reading_ = 0;
    for (Pool const& pool : pools_) {
        std::vector<Memory>& buffers = buffers_.emplace_back();
        for (std::size_t i = 0; i < copies_; ++i) {
            buffers.push_back(cuda_.allocate(static_cast<std::size_t>(numPages * pool.pageBytes)));
            cuda_.zero(buffers.back().device(), buffers.back().bytes());
        }
    }
}

void PagePools::bind(PlanContext& context) const {
    std::size_t const writing = (reading_ + 1) % copies_;
    for (std::size_t i = 0; i < pools_.size(); ++i) {
        Shape shape{numPages_};
        shape.insert(shape.end(), pools_[i].pageShape.begin(), pools_[i].pageShape.end());
        context.bindInput(pools_[i].name, buffers_[i][reading_].device(), shape);
        context.bindOutput(pools_[i].outName, buffers_[i][writing].device(), shape);
    }
}

void PagePools::scrub(std::vector<int32_t> const& pages) const {
    for (int32_t const page : pages) {
        for (std::size_t i = 0; i < pools_.size(); ++i) {
            auto const bytes = static_cast<std::size_t>(pools_[i].pageBytes);
            cuda_.zero(buffers_[i][reading_].device() + static_cast<std::size_t>(page) * bytes, bytes);
        }
    }
}

}  // namespace hspec_trt::trt
