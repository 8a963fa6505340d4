// SPDX-License-Identifier: Apache-2.0
#include "trt/tensors.h"

#include <algorithm>
#include <cstring>
#include <sstream>
#include <stdexcept>
#include <utility>

namespace hspec_trt::trt {
namespace {

constexpr std::size_t kAlignment = 256;  // what the driver aligns to, and TensorRT asks of an address

std::size_t itemSize(contract::Type type) {
    switch (type) {
        case contract::Type::kInt64:
            return 8;
        case contract::Type::kBool:
            return 1;
        default:
            return 4;
    }
}

template <typename T>
void writeList(std::vector<T> const& values, Place const& place, std::byte* block, T padding = {}) {
    auto* target = reinterpret_cast<T*>(block + place.offset);
    std::size_t const count = place.bytes / sizeof(T);
    T* end =
        std::copy(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(std::min(values.size(), count)), target);
    std::fill(end, target + count, padding);
}

void writeMatrix(std::vector<int32_t> const& values, Place const& place, std::byte* block, int32_t rows,
                 int32_t columns) {
    auto* target = reinterpret_cast<int32_t*>(block + place.offset);
    auto const width = static_cast<std::size_t>(place.shape[1]);
    std::fill(target, target + place.bytes / sizeof(int32_t), 0);
    for (std::size_t row = 0; row < static_cast<std::size_t>(rows); ++row) {
        std::copy_n(values.data() + row * static_cast<std::size_t>(columns), columns, target + row * width);
    }
}

using Write = void (*)(StepInputs const&, Place const&, std::byte*);

// How each input of the contract is filled.
constexpr std::pair<char const*, Write> kWrites[] = {
    {"input_ids", [](StepInputs const& in, Place const& at, std::byte* block) { writeList(in.inputIds, at, block); }},
    {"cu_query_lens", [](StepInputs const& in, Place const& at,
                         std::byte* block) { writeList(in.cuQueryLens, at, block, in.cuQueryLens.back()); }},
    {"context_lens",
     [](StepInputs const& in, Place const& at, std::byte* block) { writeList(in.contextLens, at, block); }},
    {"query_slots", [](StepInputs const& in, Place const& at,
                       std::byte* block) { writeMatrix(in.querySlots, at, block, in.numRows, in.longestQuery); }},
    {"verify_rows",
     [](StepInputs const& in, Place const& at, std::byte* block) { writeList(in.verifyRows, at, block); }},
    {"cu_verify_lens", [](StepInputs const& in, Place const& at,
                          std::byte* block) { writeList(in.cuVerifyLens, at, block, in.cuVerifyLens.back()); }},
    {"draft_rows",
     [](StepInputs const& in, Place const& at, std::byte* block) {
         writeList(in.draftRows, at, block, in.draftRows.empty() ? 0 : in.draftRows.front());
     }},
    {"page_table", [](StepInputs const& in, Place const& at,
                      std::byte* block) { writeMatrix(in.pageTable, at, block, in.numRows, in.pagesPerRow); }},
    {"temperature",
     [](StepInputs const& in, Place const& at, std::byte* block) { writeList(in.temperature, at, block); }},
    {"top_p", [](StepInputs const& in, Place const& at, std::byte* block) { writeList(in.topP, at, block); }},
    {"min_p", [](StepInputs const& in, Place const& at, std::byte* block) { writeList(in.minP, at, block); }},
    {"top_k", [](StepInputs const& in, Place const& at, std::byte* block) { writeList(in.topK, at, block); }},
    {"seed", [](StepInputs const& in, Place const& at, std::byte* block) { writeList(in.seed, at, block); }},
    {"next_ids", [](StepInputs const& in, Place const& at, std::byte* block) { writeList(in.nextIds, at, block); }},
    {"edit_rows",
     [](StepInputs const& in, Place const& at, std::byte* block) { writeList(in.extras.editRows, at, block); }},
    {"edit_ids",
     [](StepInputs const& in, Place const& at, std::byte* block) { writeList(in.extras.editIds, at, block); }},
    {"edit_scales",
     [](StepInputs const& in, Place const& at, std::byte* block) { writeList(in.extras.editScales, at, block); }},
    {"edit_biases",
     [](StepInputs const& in, Place const& at, std::byte* block) { writeList(in.extras.editBiases, at, block); }},
    {"mask_rows",
     [](StepInputs const& in, Place const& at, std::byte* block) { writeList(in.extras.maskRows, at, block); }},
    {"token_masks",
     [](StepInputs const& in, Place const& at, std::byte* block) { writeList(in.extras.tokenMasks, at, block); }},
    {"top_rows",
     [](StepInputs const& in, Place const& at, std::byte* block) { writeList(in.extras.topRows, at, block); }},
};

template <typename T>
void readRows(Layout const& layout, char const* name, std::byte const* block, std::size_t rows,
              std::vector<T>& values) {
    Place const* place = layout.find(name);
    if (place == nullptr) {
        values.clear();
        return;
    }
    std::size_t const all = place->shape.empty() ? 0 : static_cast<std::size_t>(place->shape[0]);
    std::size_t const width = all == 0 ? 0 : place->bytes / sizeof(T) / all;
    auto const* source = reinterpret_cast<T const*>(block + place->offset);
    values.assign(source, source + std::min(rows, all) * width);
}

}  // namespace

Sizes Sizes::of(StepShape const& shape, StepExtras const& extras, Limits const& limits) {
    return {shape,
            limits.numDrafts,
            limits.vocabSize,
            static_cast<int64_t>(extras.editRows.size()),
            static_cast<int64_t>(extras.maskRows.size()),
            static_cast<int64_t>(extras.topRows.size())};
}

int64_t Sizes::at(std::string const& dim) const {
    if (dim.size() == 3 && dim.compare(1, 2, "+1") == 0) {
        return at(dim.substr(0, 1)) + 1;
    }
    if (dim.size() == 1) {
        switch (dim[0]) {
            case 'R':
                return shape.R;
            case 'N':
                return shape.N;
            case 'T':
                return shape.T;
            case 'K':
                return shape.K;
            case 'D':
                return shape.D;
            case 'M':
                return shape.M;
            case 'G':
                return numDrafts;
            case 'V':
                return vocabSize;
            case 'E':
                return edits;
            case 'L':
                return masks;
            case 'J':
                return tops;
            case 'C':
                return std::min<int64_t>(contract::kMaxTopLogprobs, vocabSize);
            default:
                break;
        }
    }
    throw std::logic_error("the contract has a dim " + dim + " that this runtime does not know");
}

Tensor::Tensor(contract::Operand const& operand) : name(operand.name), itemSize(trt::itemSize(operand.type)) {
    std::istringstream text(operand.dims);
    for (std::string dim; text >> dim;) {
        dims.push_back(dim);
    }
}

Layout Layout::of(std::vector<Tensor> const& tensors, Sizes const& sizes) {
    Layout layout;
    layout.places.reserve(tensors.size());
    for (Tensor const& tensor : tensors) {
        Place place{&tensor, layout.bytes, tensor.itemSize, {}};
        for (std::string const& dim : tensor.dims) {
            place.shape.push_back(sizes.at(dim));
            place.bytes *= static_cast<std::size_t>(place.shape.back());
        }
        layout.bytes += (std::max<std::size_t>(place.bytes, 1) + kAlignment - 1) / kAlignment * kAlignment;
        layout.places.push_back(std::move(place));
    }
    return layout;
}

Place const* Layout::find(char const* name) const {
    auto const found =
        std::find_if(places.begin(), places.end(), [name](Place const& place) { return place.tensor->name == name; });
    return found == places.end() ? nullptr : &*found;
}

void writeInputs(StepInputs const& inputs, Layout const& layout, std::byte* block) {
    for (Place const& place : layout.places) {
        for (auto const& [name, write] : kWrites) {
            if (place.tensor->name == name) {
                write(inputs, place, block);
            }
        }
    }
}

void readOutputs(Layout const& layout, std::byte const* block, std::size_t rows, std::size_t drafts,
                 StepOutputs& outputs) {
    readRows(layout, "emitted_ids", block, rows, outputs.emittedIds);
    readRows(layout, "emitted_lens", block, rows, outputs.emittedLens);
    readRows(layout, "emitted_logprobs", block, rows, outputs.emittedLogprobs);
    readRows(layout, "draft_ids", block, drafts, outputs.draftIds);
    readRows(layout, "finite", block, rows, outputs.finite);
    readRows(layout, "top_ids", block, SIZE_MAX, outputs.topIds);
    readRows(layout, "top_logprobs", block, SIZE_MAX, outputs.topLogprobs);
}

}  // namespace hspec_trt::trt
