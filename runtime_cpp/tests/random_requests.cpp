// SPDX-License-Identifier: Apache-2.0
// Random requests from several threads, cancelled from others, on a runtime with a thread of its own: each gets exactly
// one result, and its tokens are those that the text must have, up to where it ended. Meant for builds with sanitizers.
// Usage: random_requests [REQUESTS] [SEED]
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <mutex>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "hspec_trt/runtime/runtime.h"
#include "scripted_engine.h"

namespace hspec_trt::tests {
namespace {

constexpr int32_t kEos = 3;
constexpr int32_t kNumPages = 40;
constexpr int kThreads = 4;
constexpr std::size_t kPhase = 250;  // requests that come in a crowd, then as many that come calmly

Limits limits() {
    Limits made;
    made.vocabSize = 61;
    made.numDrafts = 4;
    made.pageSize = 4;
    made.maxRows = 8;
    made.maxTokens = 48;
    made.maxSeqLen = 156;  // all pages but the null page
    made.hasDrafter = true;
    made.draftMaxPosition = 120;
    made.extensions.feedback = true;
    return made;
}

// What the callbacks of one request were told, and what it asked for.
struct Answer {
    Request request;
    std::vector<int32_t> told;
    int results = 0;
    RequestResult result;
};

std::string checkText(Answer const& answer) {
    std::vector<int32_t> text = answer.request.promptIds;
    SamplingParams const& params = answer.request.params;
    for (int32_t token : answer.result.tokenIds) {
        int32_t const wanted = nextToken(text, *params.seed, limits().vocabSize);
        if (token != wanted) {
            return "token " + std::to_string(text.size()) + " is " + std::to_string(token) + ", must be " +
                   std::to_string(wanted);
        }
        text.push_back(token);
    }
    return "";
}

std::string checkEnd(Answer const& answer) {
    std::vector<int32_t> const& ids = answer.result.tokenIds;
    SamplingParams const& params = answer.request.params;
    auto const count = [&](int32_t token) { return std::count(ids.begin(), ids.end(), token); };
    auto const isEnd = [&](int32_t token) { return !ids.empty() && ids.back() == token && count(token) == 1; };
    bool const full = static_cast<int64_t>(ids.size()) == *params.maxTokens;
    int32_t const stop = params.stopTokenIds.empty() ? -1 : params.stopTokenIds[0];
    switch (answer.result.finishReason) {
        case FinishReason::kEos:
            return !params.ignoreEos && isEnd(kEos) ? "" : "no end token at the end";
        case FinishReason::kStopToken:
            return isEnd(stop) ? "" : "no stop token at the end";
        case FinishReason::kLength:
            return full && count(stop) == 0 && (params.ignoreEos || count(kEos) == 0) ? "" : "wrong length";
        case FinishReason::kCancelled:
            return "";
        case FinishReason::kError:
            return answer.result.error ? "" : "an error without a reason";
        case FinishReason::kStopString:
            break;
    }
    return "an end that nobody asked for";
}

std::string check(Answer const& answer) {
    if (answer.results != 1) {
        return std::to_string(answer.results) + " results";
    }
    if (answer.told != answer.result.tokenIds) {
        return "the updates are not the result";
    }
    std::string const text = checkText(answer);
    return text.empty() ? checkEnd(answer) : text;
}

// Calm: a request as those have it whose steps go ahead.
Request randomRequest(std::mt19937& random, bool calm) {
    auto const pick = [&](int low, int high) { return std::uniform_int_distribution<int>(low, high)(random); };
    Request made;
    int const shared = pick(0, 1) == 0 ? 4 * pick(0, 5) : 0;  // many start alike
    for (int i = 0; i < shared; ++i) {
        made.promptIds.push_back(i % 61);
    }
    for (int i = pick(1, 20); i > 0; --i) {
        made.promptIds.push_back(pick(0, 60));
    }
    made.params.maxTokens = pick(1, 40);
    made.params.seed = pick(0, 5);  // few, so that prompts and seeds meet again
    made.params.ignoreEos = pick(0, 1) == 0;
    if (pick(0, 3) == 0) {
        made.params.stopTokenIds = {10 + pick(0, 9)};
    }
    made.params.drafts = static_cast<Drafting>(pick(0, 2));
    made.params.draftSource = static_cast<DraftSource>(pick(0, 2));
    if (calm) {
        made.params.maxTokens = pick(20, 60);
        made.params.drafts = pick(0, 3) == 0 ? Drafting::kAuto : Drafting::kOn;
        made.params.draftSource = pick(0, 19) == 0 ? DraftSource::kBoth : DraftSource::kDrafter;
    }
    made.priority = pick(0, 9) == 0 ? 1 : 0;
    made.streaming = pick(0, 1) == 0;
    return made;
}

class Traffic {
  public:
    Traffic(int requests, unsigned seed)
        : answers_(static_cast<std::size_t>(requests)),
          seed_(seed),
          runtime_(std::make_unique<ScriptedEngine>(limits(), kNumPages, 997, 101), options()) {}

    // The number of requests that went wrong.
    int run() {
        runtime_.start();
        std::vector<std::thread> threads;
        for (int number = 0; number < kThreads; ++number) {
            threads.emplace_back([this, number] { submitShare(number); });
            threads.emplace_back([this, number] { cancelSome(number); });
        }
        for (std::thread& thread : threads) {
            thread.join();
        }
        runtime_.close(true);
        return report();
    }

  private:
    static RuntimeOptions options() {
        RuntimeOptions made;
        made.eosIds = {kEos};
        return made;
    }

    void submitShare(int number) {
        std::mt19937 random(seed_ + static_cast<unsigned>(number));
        std::deque<RequestId> pending;  // to cancel
        for (std::size_t i = static_cast<std::size_t>(number); i < answers_.size(); i += kThreads) {
            Answer& answer = answers_[i];
            bool const calm = i / kPhase % 2 == 1;
            answer.request = randomRequest(random, calm);
            RequestId const id = runtime_.submit(answer.request, [&answer](Update const& update) {
                answer.told.insert(answer.told.end(), update.tokenIds, update.tokenIds + update.numTokens);
                if (update.result != nullptr) {
                    ++answer.results;
                    answer.result = *update.result;
                }
            });
            lastId_ = id;
            if (random() % 16 == 0) {  // a client that leaves at once, or soon; others do so in threads of their own
                pending.push_back(id);
            }
            if (pending.size() > random() % 2) {
                runtime_.cancel(pending.front());
                pending.pop_front();
            }
            while (lastId_ - static_cast<RequestId>(numResults()) > (calm ? 3 : 64)) {  // a line, but no endless one
                std::this_thread::yield();
            }
        }
        ++done_;
    }

    void cancelSome(int number) {
        std::mt19937 random(seed_ + 100 + static_cast<unsigned>(number));
        RequestId next = 1;  // each thread cancels about one in sixteen, however fast the others are
        while (done_ < kThreads) {
            RequestId const last = lastId_;
            if (last >= next) {
                runtime_.cancel(last - static_cast<RequestId>(random() % (random() % 2 == 0 ? 4 : 60)));
                next = last + 1 + static_cast<RequestId>(random() % 30);
            }
            std::this_thread::yield();
        }
    }

    int64_t numResults() const {
        int64_t sum = 0;
        for (auto const& [reason, count] : runtime_.stats().finished) {
            sum += count;
        }
        return sum;
    }

    int report() const {
        int failed = 0;
        for (std::size_t i = 0; i < answers_.size(); ++i) {
            std::string const fault = check(answers_[i]);
            if (!fault.empty() && ++failed <= 10) {
                std::printf("request %zu: %s\n", i, fault.c_str());
            }
        }
        RuntimeStats const stats = runtime_.stats();
        std::printf(
            "%zu requests, %lld steps, %lld ahead, %lld preemptions, %lld tokens from the prefix cache, "
            "tau %.2f\n",
            answers_.size(), static_cast<long long>(stats.steps), static_cast<long long>(stats.followedSteps),
            static_cast<long long>(stats.preemptions), static_cast<long long>(stats.cachedTokens),
            stats.drafts.acceptedLength());
        for (auto const& [reason, count] : stats.finished) {
            std::printf("  %s: %lld\n", finishReasonName(reason), static_cast<long long>(count));
        }
        return failed;
    }

    std::vector<Answer> answers_;
    unsigned seed_;
    std::atomic<RequestId> lastId_{0};
    std::atomic<int> done_{0};
    Runtime runtime_;
};

}  // namespace
}  // namespace hspec_trt::tests

int main(int argc, char** argv) {
    int const requests = argc > 1 ? std::atoi(argv[1]) : 10000;
    unsigned const seed = argc > 2 ? static_cast<unsigned>(std::atoi(argv[2])) : 1;
    return hspec_trt::tests::Traffic(requests, seed).run() == 0 ? 0 : 1;
}
