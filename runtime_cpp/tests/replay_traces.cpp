// SPDX-License-Identifier: Apache-2.0
// Runs the scripts of recorded traces: the runtime must ask for exactly the recorded step inputs and give exactly the
// recorded answers. Usage: replay_traces TRACE...
#include <algorithm>
#include <cstdio>
#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "core.h"
#include "replay/replay_engine.h"
#include "replay/values.h"
#include "script.h"
#include "shown.h"

namespace hspec_trt::tests {
namespace {

// What a callback was told of one request.
struct Told {
    std::vector<int32_t> tokenIds;
    std::vector<float> logprobs;
    std::vector<std::size_t> updates;
    std::vector<RequestResult> results;
};

// Values as JSON texts, spaced as json::Value::dump spaces them.
template <typename T>
std::string listOf(std::vector<T> const& values) {
    std::string text;
    for (T const& value : values) {
        text += (text.empty() ? "" : ", ") + std::to_string(value);
    }
    return "[" + text + "]";
}

std::string listOf(std::vector<TopTokens> const& positions) {
    std::string text;
    for (TopTokens const& tops : positions) {
        std::string line;
        for (auto const& [id, logprob] : tops) {
            line +=
                (line.empty() ? "[" : ", [") + std::to_string(id) + ", " + shown(static_cast<double>(logprob)) + "]";
        }
        text += (text.empty() ? "[" : ", [") + line + "]";
    }
    return "[" + text + "]";
}

// Counts that are not 0, in the order of their names.
std::string countsOf(std::vector<std::pair<std::string, int64_t>> const& counts) {
    std::string text;
    for (auto const& [name, count] : counts) {
        if (count != 0) {
            text += (text.empty() ? "" : ", ") + json::quoted(name) + ": " + std::to_string(count);
        }
    }
    return "{" + text + "}";
}

std::string lengthsOf(DraftStats const& stats) {
    std::vector<std::pair<std::string, int64_t>> counts;
    for (std::size_t length = 0; length < stats.lengths.size(); ++length) {
        counts.emplace_back(std::to_string(length), stats.lengths[length]);
    }
    return countsOf(counts);
}

std::string withoutOf(DraftStats const& stats) {
    static constexpr char const* kNames[kNumNoDrafts] = {"off",      "policy", "length", "position",
                                                         "no_match", "budget", "pages"};
    std::vector<std::pair<std::string, int64_t>> counts;
    for (std::size_t reason = 0; reason < kNumNoDrafts; ++reason) {
        counts.emplace_back(kNames[reason], stats.without[reason]);
    }
    std::sort(counts.begin(), counts.end());
    return countsOf(counts);
}

// The answer in the form in which it was recorded.
std::map<std::string, std::string> answerOf(Told const& told) {
    RequestResult const& result = told.results.at(0);
    DraftStats const& stats = result.drafts;
    return {
        {"token_ids", listOf(told.tokenIds)},
        {"updates", listOf(told.updates)},
        {"tops", listOf(result.topLogprobs)},
        {"finish", json::quoted(finishReasonName(result.finishReason))},
        {"error", result.error ? json::quoted(result.error->what()) : "null"},
        {"steps", std::to_string(stats.steps)},
        {"emitted", std::to_string(stats.emitted)},
        {"first_tokens", std::to_string(stats.firstTokens)},
        {"offered", listOf(stats.offered)},
        {"accepted", listOf(stats.accepted)},
        {"lengths", lengthsOf(stats)},
        {"without", withoutOf(stats)},
        {"cached_tokens", std::to_string(result.timing.cachedTokens)},
        {"preemptions", std::to_string(result.timing.preemptions)},
    };
}

std::string scrubsOf(ReplayEngine const& engine) {
    std::string text;
    for (auto const& [step, pages] : engine.scrubs()) {
        text += (text.empty() ? "[" : ", [") + std::to_string(step) + ", " + listOf(pages) + "]";
    }
    return "[" + text + "]";
}

class Replay {
  public:
    explicit Replay(std::string const& path)
        : trace_(std::make_shared<Trace const>(path)), engine_(trace_), core_(engine_, optionsOf(trace_->meta())) {}

    // What differs from the recording, one line each.
    std::vector<std::string> run() {
        int64_t lastEvent = 0;
        for (json::Value const& event : trace_->meta().at("events").array) {
            lastEvent = std::max(lastEvent, event.at("at").integer);
        }
        for (int64_t call = 0; call <= lastEvent || !core_.isIdle(); ++call) {
            apply(call);
            core_.step();
        }
        core_.deliver();
        compare();
        return differences_;
    }

  private:
    void apply(int64_t call) {
        for (json::Value const& event : trace_->meta().at("events").array) {
            if (event.at("at").integer != call) {
                continue;
            }
            if (json::Value const* const submitted = event.find("submit")) {
                submit(*submitted);
            } else {
                core_.cancel(event.at("cancel").integer);
            }
        }
    }

    void submit(json::Value const& stored) {
        Told& told = told_[static_cast<RequestId>(told_.size()) + 1];
        core_.add(core_.intake().make(requestOf(stored, engine_.limits().vocabSize), [&told](Update const& update) {
            told.updates.push_back(update.numTokens);
            told.tokenIds.insert(told.tokenIds.end(), update.tokenIds, update.tokenIds + update.numTokens);
            told.logprobs.insert(told.logprobs.end(), update.logprobs, update.logprobs + update.numTokens);
            if (update.result != nullptr) {
                told.results.push_back(*update.result);
            }
        }));
    }

    void compare() {
        if (!engine_.firstDifference().empty()) {
            differences_.push_back(engine_.firstDifference());
        }
        compare("steps", std::to_string(engine_.numSteps()), std::to_string(trace_->steps().size()));
        compare("scrubs", scrubsOf(engine_), trace_->meta().at("scrubs").dump());
        std::vector<json::Value> const& answers = trace_->meta().at("answers").array;
        compare("answers", std::to_string(told_.size()), std::to_string(answers.size()));
        std::vector<float> logprobs;
        for (auto const& [id, told] : told_) {
            std::string const name = "answer " + std::to_string(id);
            if (told.results.size() != 1) {
                differences_.push_back(name + " has " + std::to_string(told.results.size()) + " results");
                continue;
            }
            std::map<std::string, std::string> const made = answerOf(told);
            for (auto const& [key, value] : answers.at(static_cast<std::size_t>(id) - 1).members) {
                compare(name + "." + key, made.at(key), value.dump());
            }
            compare(name + ".result", listOf(told.results[0].tokenIds), listOf(told.tokenIds));
            logprobs.insert(logprobs.end(), told.logprobs.begin(), told.logprobs.end());
        }
        Span<float> const recorded = trace_->tensor<float>("answers.logprobs");
        if (logprobs.size() != recorded.size ||
            (recorded.size != 0 && std::memcmp(logprobs.data(), recorded.data, recorded.size * sizeof(float)) != 0)) {
            differences_.push_back("log-probabilities differ");
        }
        if (core_.scheduler().allocator().inUse() != 0) {
            differences_.push_back("pages are left in use");
        }
    }

    void compare(std::string const& name, std::string const& made, std::string const& recorded) {
        if (made != recorded) {
            differences_.push_back(name + " is " + made + ", recorded " + recorded);
        }
    }

    std::shared_ptr<Trace const> trace_;
    ReplayEngine engine_;
    EngineCore core_;
    std::map<RequestId, Told> told_;
    std::vector<std::string> differences_;
};

int replayAll(int count, char** paths) {
    int failed = 0;
    for (int i = 0; i < count; ++i) {
        std::vector<std::string> const differences = Replay(paths[i]).run();
        std::printf("%s %s\n", differences.empty() ? "same" : "DIFFERS", paths[i]);
        for (std::size_t d = 0; d < std::min<std::size_t>(differences.size(), 3); ++d) {
            std::printf("    %.200s\n", differences[d].c_str());
        }
        failed += differences.empty() ? 0 : 1;
    }
    return failed == 0 ? 0 : 1;
}

}  // namespace
}  // namespace hspec_trt::tests

int main(int argc, char** argv) {
    try {
        return hspec_trt::tests::replayAll(argc - 1, argv + 1);
    } catch (std::exception const& error) {
        std::printf("%s\n", error.what());
        return 2;
    }
}
