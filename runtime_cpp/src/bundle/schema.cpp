// SPDX-License-Identifier: Apache-2.0
#include "bundle/schema.h"

#include <algorithm>

#include "bundle/manifest_gen.h"

namespace hspec_trt::schema {
namespace {

using json::Kind;
using json::Value;
using Found = std::optional<std::string>;

// Walks a value beside its table; `path` is the key that is looked at.
class Check {
  public:
    Found record(Record const& record, Value const& value, std::string const& path) const {
        if (value.kind != Kind::kObject) {
            return fault(path, "Input should be an object");
        }
        std::string const prefix = path.empty() ? "" : path + ".";
        for (std::size_t i = 0; i < record.size; ++i) {
            Field const& field = record.fields[i];
            Value const* member = value.find(field.name);
            if (member == nullptr && field.required) {
                return fault(prefix + field.name, "Field required");
            }
            Found const found = member == nullptr ? Found{} : held(field, *member, prefix + field.name);
            if (found) {
                return found;
            }
        }
        return unknown(record, value, prefix);
    }

  private:
    static Found fault(std::string const& path, std::string const& what) { return path + ": " + what; }

    static Found unknown(Record const& record, Value const& value, std::string const& prefix) {
        for (Value::Member const& member : value.members) {
            bool const known = std::any_of(record.fields, record.fields + record.size,
                                           [&member](Field const& field) { return member.first == field.name; });
            if (!known) {
                return fault(prefix + member.first, "Unexpected keyword argument");
            }
        }
        return {};
    }

    Found held(Field const& field, Value const& value, std::string const& path) const {
        if (field.nullable && value.isNull()) {
            return {};
        }
        switch (field.holder) {
            case Holder::kOne:
                return one(field, value, path);
            case Holder::kList:
                return list(field, value, path);
            case Holder::kMap:
                return map(field, value, path);
        }
        return {};
    }

    Found list(Field const& field, Value const& value, std::string const& path) const {
        if (value.kind != Kind::kArray) {
            return fault(path, "Input should be a valid array");
        }
        Found found;
        for (std::size_t i = 0; i < value.array.size() && !found; ++i) {
            found = one(field, value.array[i], path + "." + std::to_string(i));
        }
        return found;
    }

    Found map(Field const& field, Value const& value, std::string const& path) const {
        if (value.kind != Kind::kObject) {
            return fault(path, "Input should be an object");
        }
        Found found;
        for (std::size_t i = 0; i < value.members.size() && !found; ++i) {
            found = one(field, value.members[i].second, path + "." + value.members[i].first);
        }
        return found;
    }

    Found one(Field const& field, Value const& value, std::string const& path) const {
        switch (field.type) {
            case Type::kRecord:
                return record(*field.record, value, path);
            case Type::kDrafter:
                return drafter(value, path);
            case Type::kChoice:
                return choice(field, value, path);
            case Type::kInteger:
                return scalar(value.kind == Kind::kInteger, "integer", path);
            case Type::kFloat:
                return scalar(value.kind == Kind::kInteger || value.kind == Kind::kFloat, "number", path);
            case Type::kBool:
                return scalar(value.kind == Kind::kBool, "boolean", path);
            case Type::kString:
                return scalar(value.kind == Kind::kString, "string", path);
        }
        return {};
    }

    static Found scalar(bool ok, char const* wanted, std::string const& path) {
        return ok ? Found{} : fault(path, std::string("Input should be a valid ") + wanted);
    }

    static Found choice(Field const& field, Value const& value, std::string const& path) {
        std::string const choices = field.choices;
        bool const known = value.kind == Kind::kString && value.string.find('\'') == std::string::npos &&
                           choices.find("'" + value.string + "'") != std::string::npos;
        return known ? Found{} : fault(path, "Input should be " + choices);
    }

    Found drafter(Value const& value, std::string const& path) const {
        DrafterKind const* kind = drafterKind(value);
        if (kind == nullptr) {
            return fault(path, std::string("the kind is not one of ") + kDrafterKindNames);
        }
        return record(*kind->record, value, path + "." + kind->name);
    }
};

}  // namespace

DrafterKind const* drafterKind(Value const& drafter) {
    Value const* name = drafter.find("kind");
    for (DrafterKind const& kind : kDrafterKinds) {
        if (name != nullptr && name->kind == Kind::kString && name->string == kind.name) {
            return &kind;
        }
    }
    return nullptr;
}

std::optional<std::string> firstFault(Value const& manifest) {
    return Check().record(kRoot, manifest, "");
}

}  // namespace hspec_trt::schema
