// SPDX-License-Identifier: Apache-2.0
#include "replay/trace.h"

#include <cstring>
#include <fstream>
#include <iterator>
#include <map>

#include "hspec_trt/runtime/error.h"
#include "replay/values.h"

namespace hspec_trt {
namespace {

Error unreadable(std::string const& path, std::string const& why) {
    return Error(Fault{"R321", "the trace cannot be read: " + why, "a file of build_scripts/record_traces.py", path});
}

std::vector<char> readFile(std::string const& path) {
    std::ifstream file(path, std::ios::binary);
    if (!file) {
        throw unreadable(path, "no such file");
    }
    return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

}  // namespace

Trace::Trace(std::string const& path) {
    std::vector<char> const file = readFile(path);
    uint64_t headerSize = 0;
    if (file.size() < sizeof(headerSize)) {
        throw unreadable(path, "it is too short");
    }
    std::memcpy(&headerSize, file.data(), sizeof(headerSize));
    if (headerSize > file.size() - sizeof(headerSize)) {
        throw unreadable(path, "its header is cut off");
    }
    char const* const header = file.data() + sizeof(headerSize);
    data_.assign(header + headerSize, file.data() + file.size());
    try {
        for (auto const& [name, entry] : json::parse({header, headerSize}).members) {
            if (name == "__metadata__") {
                meta_ = json::parse(entry.at("trace").string);
            } else {
                addTensor(name, entry);
            }
        }
        limits();
    } catch (std::exception const& fault) {
        throw unreadable(path, fault.what());
    }
    Span<StepSizes> const sizes = tensor<StepSizes>("sizes");
    steps_.assign(sizes.data, sizes.data + sizes.size);
}

Limits Trace::limits() const {
    json::Value const& stored = meta_.at("limits");
    Limits made;
    made.vocabSize = valueAs<int32_t>(stored.at("vocab_size"));
    made.numDrafts = valueAs<int32_t>(stored.at("num_drafts"));
    made.pageSize = valueAs<int32_t>(stored.at("page_size"));
    made.pageBytes = valueAs<int64_t>(stored.at("page_bytes"));
    made.maxRows = valueAs<int32_t>(stored.at("max_rows"));
    made.maxTokens = valueAs<int32_t>(stored.at("max_tokens"));
    made.maxSeqLen = valueAs<int32_t>(stored.at("max_seq_len"));
    made.hasDrafter = valueAs<bool>(stored.at("has_drafter"));
    made.draftMaxPosition = valueAs<int32_t>(stored.at("draft_max_position"));
    made.cacheLookahead = valueAs<int32_t>(stored.at("cache_lookahead"));
    for (std::string const& name : vectorOf<std::string>(stored.at("extensions"))) {
        made.extensions.logitEdits = made.extensions.logitEdits || name == "logit_edits";
        made.extensions.tokenMasks = made.extensions.tokenMasks || name == "token_masks";
        made.extensions.topLogprobs = made.extensions.topLogprobs || name == "top_logprobs";
        made.extensions.feedback = made.extensions.feedback || name == "feedback";
    }
    return made;
}

void Trace::addTensor(std::string const& name, json::Value const& entry) {
    static std::map<std::string, std::size_t> const elementBytes = {
        {"F64", 8}, {"I64", 8}, {"F32", 4}, {"I32", 4}, {"U8", 1}};
    std::vector<int64_t> const offsets = vectorOf<int64_t>(entry.at("data_offsets"));
    auto const begin = static_cast<std::size_t>(offsets.at(0));
    auto const end = static_cast<std::size_t>(offsets.at(1));
    if (begin > end || end > data_.size() || begin % elementBytes.at(entry.at("dtype").string) != 0) {
        throw std::out_of_range("tensor " + name + " lies outside the file or is not aligned");
    }
    tensors_[name] = {begin, end};
}

}  // namespace hspec_trt
