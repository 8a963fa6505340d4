// SPDX-License-Identifier: Apache-2.0
// How a service embeds the runtime: it owns one runtime with a thread of its own; each client is a queue that the
// callback fills and the client's thread empties. One client leaves early.
//
//     stream (ENGINE_DIR | --replay TRACE)
#include <condition_variable>
#include <cstdio>
#include <deque>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "engine_argument.h"

namespace {

using namespace hspec_trt;

// What the callback hands from the runtime's thread to a client's: tokens, and at last the result.
class Stream {
  public:
    void put(Update const& update) {
        std::lock_guard<std::mutex> const lock(mutex_);
        tokens_.insert(tokens_.end(), update.tokenIds, update.tokenIds + update.numTokens);
        if (update.result != nullptr) {
            result_ = *update.result;
        }
        news_.notify_one();
    }

    // The next token; none once the answer has ended.
    std::optional<int32_t> next() {
        std::unique_lock<std::mutex> lock(mutex_);
        news_.wait(lock, [this] { return !tokens_.empty() || result_; });
        if (tokens_.empty()) {
            return std::nullopt;
        }
        int32_t const token = tokens_.front();
        tokens_.pop_front();
        return token;
    }

    // Once `next` has given none.
    RequestResult const& result() const { return *result_; }

  private:
    std::mutex mutex_;
    std::condition_variable news_;
    std::deque<int32_t> tokens_;
    std::optional<RequestResult> result_;
};

struct Client {
    std::vector<int32_t> prompt;
    std::size_t patience = 0;  // tokens after which it leaves; 0: it stays to the end
    Stream stream;
    std::string text;
};

std::unique_ptr<Client> makeClient(std::vector<int32_t> prompt, std::size_t patience) {
    auto made = std::make_unique<Client>();
    made->prompt = std::move(prompt);
    made->patience = patience;
    return made;
}

void submit(Runtime& runtime, Client& client) {
    Request request;
    request.promptIds = client.prompt;
    request.params.temperature = 0.0;
    request.params.seed = 0;
    request.params.maxTokens = 24;
    request.params.drafts = Drafting::kOn;
    auto const told = std::make_shared<std::size_t>(0);
    runtime.submit(request, [&runtime, &client, told](Update const& update) {
        std::size_t const before = *told;
        *told += update.numTokens;
        if (before < client.patience && *told >= client.patience) {
            runtime.cancel(update.id);
        }
        client.stream.put(update);
    });
}

void listen(Client& client) {
    while (std::optional<int32_t> const token = client.stream.next()) {
        client.text += std::to_string(*token) + " ";
    }
}

int serve(int argc, char** argv) {
    ChosenEngine chosen = chooseEngine(argc, argv);
    std::vector<std::unique_ptr<Client>> clients;  // outlive the runtime, which tells them of their end
    clients.push_back(makeClient({11, 12, 13, 14}, 0));
    clients.push_back(makeClient({21, 22, 23}, 5));
    clients.push_back(makeClient({11, 12, 13, 14, 15, 16}, 0));
    Runtime runtime(std::move(chosen.engine), chosen.options);
    for (auto const& client : clients) {
        submit(runtime, *client);
    }
    runtime.start();
    std::vector<std::thread> threads;
    for (auto const& client : clients) {
        threads.emplace_back([&client] { listen(*client); });
    }
    for (std::thread& thread : threads) {
        thread.join();
    }
    runtime.close();
    int failed = 0;
    for (auto const& client : clients) {
        RequestResult const& result = client->stream.result();
        std::printf("%s(%s)\n", client->text.c_str(), finishReasonName(result.finishReason));
        if (result.error) {
            std::fprintf(stderr, "%s\n", result.error->what());
            failed = 2;
        }
    }
    return failed;
}

}  // namespace

int main(int argc, char** argv) {
    try {
        return serve(argc, argv);
    } catch (std::exception const& error) {
        std::fprintf(stderr, "%s\n", error.what());
        return 2;
    }
}
