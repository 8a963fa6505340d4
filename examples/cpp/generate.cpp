// SPDX-License-Identifier: Apache-2.0
// One prompt, one answer: prints the token ids as they come, then what drafting did.
//
//     generate (ENGINE_DIR | --replay TRACE) --prompt-ids 11,12,13 [--max-tokens N] [--temperature T] [--seed S]
//              [--drafts on|off|auto]
//
// The runtime takes and gives token ids; put the tokenizer of your service around it.
#include <cstdio>
#include <exception>
#include <map>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "engine_argument.h"

namespace {

using namespace hspec_trt;

template <typename Number>
Number numberOf(std::string const& name, std::string const& text) {
    std::istringstream stream(text);
    Number value{};
    if (!(stream >> value) || !stream.eof()) {
        throw std::invalid_argument(name + " is '" + text + "', needs a number");
    }
    return value;
}

std::vector<int32_t> idsOf(std::string const& name, std::string const& text) {
    std::vector<int32_t> ids;
    std::istringstream parts(text);
    for (std::string part; std::getline(parts, part, ',');) {
        ids.push_back(numberOf<int32_t>(name, part));
    }
    return ids;
}

Drafting draftingOf(std::string const& name, std::string const& text) {
    static std::map<std::string, Drafting> const modes = {
        {"on", Drafting::kOn}, {"off", Drafting::kOff}, {"auto", Drafting::kAuto}};
    auto const found = modes.find(text);
    if (found == modes.end()) {
        throw std::invalid_argument(name + " is '" + text + "', needs on, off or auto");
    }
    return found->second;
}

Request requestFrom(int argc, char** argv, int first) {
    Request request;
    request.params.temperature = 0.0;
    request.params.seed = 0;
    for (int i = first; i < argc; i += 2) {
        std::string const name = argv[i];
        if (i + 1 == argc) {
            throw std::invalid_argument(name + " needs a value");
        }
        std::string const value = argv[i + 1];
        if (name == "--prompt-ids") {
            request.promptIds = idsOf(name, value);
        } else if (name == "--max-tokens") {
            request.params.maxTokens = numberOf<int64_t>(name, value);
        } else if (name == "--temperature") {
            request.params.temperature = numberOf<double>(name, value);
        } else if (name == "--seed") {
            request.params.seed = numberOf<int64_t>(name, value);
        } else if (name == "--drafts") {
            request.params.drafts = draftingOf(name, value);
        } else {
            throw std::invalid_argument("unknown option " + name);
        }
    }
    return request;
}

int generate(int argc, char** argv) {
    ChosenEngine chosen = chooseEngine(argc, argv);
    Request const request = requestFrom(argc, argv, chosen.nextArgument);
    bool failed = false;
    Runtime runtime(std::move(chosen.engine), chosen.options);
    runtime.submit(request, [&failed](Update const& update) {
        for (std::size_t i = 0; i < update.numTokens; ++i) {
            std::printf("%d ", update.tokenIds[i]);
        }
        std::fflush(stdout);
        if (update.result == nullptr) {
            return;
        }
        DraftStats const& drafts = update.result->drafts;
        std::printf("\n%zu tokens, %s, %lld steps, accepted length %.2f\n", update.result->tokenIds.size(),
                    finishReasonName(update.result->finishReason), static_cast<long long>(drafts.steps),
                    drafts.acceptedLength());
        if (update.result->error) {
            std::fprintf(stderr, "%s\n", update.result->error->what());
            failed = true;
        }
    });
    while (runtime.step()) {
    }
    return failed ? 2 : 0;
}

}  // namespace

int main(int argc, char** argv) {
    try {
        return generate(argc, argv);
    } catch (std::exception const& error) {
        std::fprintf(stderr, "%s\n", error.what());
        return 2;
    }
}
