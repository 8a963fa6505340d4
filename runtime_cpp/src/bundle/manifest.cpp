// SPDX-License-Identifier: Apache-2.0
#include "bundle/manifest.h"

#include <algorithm>
#include <initializer_list>
#include <iterator>
#include <limits>
#include <stdexcept>
#include <utility>

#include "bundle/manifest_gen.h"
#include "hspec_trt/contract_gen.h"
#include "hspec_trt/runtime/error.h"

namespace hspec_trt {
namespace {

using json::Kind;
using json::Value;

Fault fault(char const* code, std::string found, std::string needed, std::string const& where) {
    return {code, std::move(found), std::move(needed), where, schema::kRebuild};
}

[[noreturn]] void refuse(std::string found, std::string const& where) {
    throw Error(fault("L003", std::move(found), "an engine manifest", where));
}

Value parsed(std::string_view text, std::string const& where) {
    std::size_t const start = text.find_first_not_of(" \t\r\n");
    if (start != std::string_view::npos && text[start] == '{') {
        try {
            return json::parse(text);
        } catch (std::out_of_range const&) {
            refuse("the file has a whole number beyond 64 bits", where);
        } catch (std::invalid_argument const&) {
        }
    }
    refuse("the file is not a JSON object", where);
}

void checkVersions(Value const& manifest, std::string const& where) {
    for (auto const& [key, wanted] : {std::pair<char const*, int64_t>{"format_version", schema::kFormatVersion},
                                      {"contract_version", contract::kContractVersion}}) {
        Value const* value = manifest.find(key);
        std::string const found = value == nullptr ? "missing" : shownValue(*value);
        std::string const needed = std::to_string(wanted);
        if (found != needed) {
            throw Error(fault("L004", std::string(key) + " is " + found, needed, where));
        }
    }
}

// Collects what a runtime cannot work with.
class Bounds {
  public:
    explicit Bounds(std::string const& where) : where_(where) {}

    void within(char const* key, int64_t value, int64_t low) {
        constexpr int64_t kMost = std::numeric_limits<int32_t>::max();
        if (value < low || value > kMost) {
            add(std::string(key) + " is " + std::to_string(value),
                std::to_string(low) + " to " + std::to_string(kMost));
        }
    }

    void add(std::string found, std::string needed) {
        faults_.push_back(fault("L003", std::move(found), std::move(needed), where_));
    }

    void raiseAny() const {
        if (!faults_.empty()) {
            throw Error(faults_);
        }
    }

  private:
    std::string const& where_;
    std::vector<Fault> faults_;
};

void checkPageSize(int64_t size, Bounds& bounds) {
    if (std::count(std::begin(contract::kPageSizes), std::end(contract::kPageSizes), size) > 0) {
        return;
    }
    std::string sizes;
    for (int32_t const each : contract::kPageSizes) {
        sizes += (sizes.empty() ? "" : ", ") + std::to_string(each);
    }
    bounds.add("limits.page_size is " + std::to_string(size), "one of " + sizes);
}

void checkDtype(Value const& dtype, Bounds& bounds) {
    std::string names;
    for (char const* name : schema::kStepDtypes) {
        if (dtype.string == name) {
            return;
        }
        names += (names.empty() ? "" : ", ") + std::string(name);
    }
    bounds.add("dtype is " + shownValue(dtype), "one of " + names);
}

void checkValues(Value const& manifest, std::string const& where) {
    Bounds bounds(where);
    Value const& target = manifest.at("target");
    Value const& limits = manifest.at("limits");
    Value const& drafter = manifest.at("drafter");
    bounds.within("target.vocab_size", target.at("vocab_size").integer, 1);
    if (Value const* eos = target.find("eos_token_ids")) {
        for (Value const& token : eos->array) {
            bounds.within("target.eos_token_ids", token.integer, 0);
        }
    }
    bounds.within("drafter.max_position", drafter.isNull() ? 0 : drafter.at("max_position").integer, 0);
    bounds.within("limits.max_batch_size", limits.at("max_batch_size").integer, 1);
    bounds.within("limits.max_seq_len", limits.at("max_seq_len").integer, 1);
    bounds.within("limits.max_num_tokens", limits.at("max_num_tokens").integer, 1);
    bounds.within("limits.num_drafts", limits.at("num_drafts").integer, 0);
    checkPageSize(limits.at("page_size").integer, bounds);
    checkDtype(manifest.at("dtype"), bounds);
    bounds.raiseAny();
}

Limits limitsOf(Value const& manifest) {
    Value const& given = manifest.at("limits");
    Value const& drafter = manifest.at("drafter");
    auto const number = [&given](char const* key) { return static_cast<int32_t>(given.at(key).integer); };
    Limits limits;
    limits.vocabSize = static_cast<int32_t>(manifest.at("target").at("vocab_size").integer);
    limits.numDrafts = number("num_drafts");
    limits.pageSize = number("page_size");
    limits.maxRows = number("max_batch_size");
    limits.maxTokens = number("max_num_tokens");
    limits.maxSeqLen = number("max_seq_len");
    limits.hasDrafter = !drafter.isNull();
    if (limits.hasDrafter) {
        limits.draftMaxPosition = static_cast<int32_t>(drafter.at("max_position").integer);
        limits.cacheLookahead = schema::drafterKind(drafter)->needsNextIds ? 1 : 0;
    }
    if (Value const* extensions = given.find("extensions")) {
        for (Value const& extension : extensions->array) {
            limits.extensions.logitEdits |= extension.string == "logit_edits";
            limits.extensions.tokenMasks |= extension.string == "token_masks";
            limits.extensions.topLogprobs |= extension.string == "top_logprobs";
            limits.extensions.feedback |= extension.string == "feedback";
        }
    }
    return limits;
}

Artifact artifactOf(Value const& value) {
    Artifact artifact;
    artifact.file = value.at("file").string;
    if (Value const* version = value.find("tensorrt_version")) {
        artifact.tensorrtVersion = version->string;
    }
    if (Value const* sm = value.find("sm")) {
        std::transform(sm->array.begin(), sm->array.end(), std::back_inserter(artifact.sm),
                       [](Value const& each) { return each.integer; });
    }
    return artifact;
}

}  // namespace

Manifest Manifest::parse(std::string_view text, std::string const& where) {
    Value const value = parsed(text, where);
    checkVersions(value, where);
    if (std::optional<std::string> const found = schema::firstFault(value)) {
        refuse(*found, where);
    }
    checkValues(value, where);
    Manifest manifest;
    manifest.backend = value.at("backend").string;
    Value const* plugins = value.find("plugins");
    manifest.pluginKernels = plugins != nullptr && plugins->string == "kernels";
    manifest.limits = limitsOf(value);
    if (Value const* eos = value.at("target").find("eos_token_ids")) {
        for (Value const& token : eos->array) {
            manifest.eosIds.push_back(static_cast<int32_t>(token.integer));
        }
    }
    for (Value const& artifact : value.at("artifacts").array) {
        manifest.artifacts.push_back(artifactOf(artifact));
    }
    for (auto const& [name, record] : value.at("files").members) {
        manifest.files.push_back(
            {name, record.at("size").integer, record.at("sha256").string, record.at("sample_sha256").string});
    }
    return manifest;
}

std::string shownValue(Value const& value) {
    switch (value.kind) {
        case Kind::kFloat:
            return "a fraction";
        case Kind::kArray:
            return "a list";
        case Kind::kObject:
            return "an object";
        default:
            break;
    }
    std::string const text = value.dump();
    return text.size() <= schema::kMaxShown ? text : text.substr(0, schema::kMaxShown - 3) + "...";
}

std::string shownText(std::string_view text) {
    Value value;
    value.kind = Kind::kString;
    value.string = text;
    return shownValue(value);
}

}  // namespace hspec_trt
