// SPDX-License-Identifier: Apache-2.0
// What a manifest looks like: tables of fields (manifest_gen.h), and the check of a JSON value against them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "json.h"

namespace hspec_trt::schema {

enum class Type : int8_t { kInteger, kFloat, kBool, kString, kChoice, kRecord, kDrafter };
enum class Holder : int8_t { kOne, kList, kMap };

struct Record;

struct Field {
    char const* name;
    Type type;
    Holder holder;
    bool required;
    bool nullable;
    char const* choices;   // of kChoice, as messages list them: "'a', 'b' or 'c'"
    Record const* record;  // of kRecord
};

struct Record {
    Field const* fields;
    std::size_t size;
};

// A kind of drafter, told apart by its field `kind`.
struct DrafterKind {
    char const* name;
    Record const* record;
    bool needsNextIds;
};

// The table entry of a drafter; nullptr for a value that is no drafter of ours.
DrafterKind const* drafterKind(json::Value const& drafter);

// The first thing in which `manifest` is not as the tables say: "key.of.it: what is wrong".
std::optional<std::string> firstFault(json::Value const& manifest);

}  // namespace hspec_trt::schema
