// SPDX-License-Identifier: Apache-2.0
// The thread that owns a core (hspec_trt/runtime/worker.py): takes requests from any thread and steps while there is
// work.
#include "hspec_trt/runtime/runtime.h"

#include <condition_variable>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>

#include "core.h"

namespace hspec_trt {

class Runtime::Worker {
  public:
    Worker(std::unique_ptr<StepEngine> engine, RuntimeOptions const& options)
        : engine_(std::move(engine)), core_(*engine_, options) {}

    Limits const& limits() const { return engine_->limits(); }
    RuntimeStats stats() const { return core_.stats(); }

    RequestId submit(Request request, TokenCallback callback) {
        std::unique_ptr<Sequence> made = core_.intake().make(std::move(request), std::move(callback));
        RequestId const id = made->number;
        std::lock_guard<std::mutex> const lock(mutex_);
        if (closed_) {
            throw Error(*closed_);
        }
        inbox_.push_back({std::move(made), id});
        news_.notify_one();
        return id;
    }

    void cancel(RequestId id) {
        std::lock_guard<std::mutex> const lock(mutex_);
        inbox_.push_back({nullptr, id});
        news_.notify_one();
    }

    void start() {
        thread_ = std::thread([this] {
            while (waitForWork()) {
                step();
            }
        });
    }

    // Also obeys an order to stop.
    bool step() {
        try {
            obey();
            bool const ran = core_.step();
            if (core_.isIdle()) {
                core_.deliver();
            }
            return ran;
        } catch (std::exception const& fault) {  // nobody is left waiting, whatever went wrong
            Error const error(
                Fault{"R304", "the step loop ended by a fault of ours", "", fault.what(), "Load the engine again"});
            {
                std::lock_guard<std::mutex> const lock(mutex_);
                closed_ = error;
                isStopping_ = true;
            }
            obey();
            return false;
        }
    }

    void close(bool drain) {
        std::lock_guard<std::mutex> const once(closeMutex_);
        {
            std::lock_guard<std::mutex> const lock(mutex_);
            if (!closed_) {
                closed_ = Error(Fault{"R303", "the engine is closed"});
                isStopping_ = true;
                isDraining_ = drain;
            }
            news_.notify_one();
        }
        if (thread_.joinable()) {
            thread_.join();
        } else {
            while (step()) {
            }
        }
    }

  private:
    // A sequence to add, or the id of one to cancel.
    struct Command {
        std::unique_ptr<Sequence> added;
        RequestId id;
    };

    // False once there is nothing more to do.
    bool waitForWork() {
        std::unique_lock<std::mutex> lock(mutex_);
        news_.wait(lock, [this] { return !inbox_.empty() || isStopping_ || !core_.isIdle(); });
        return !(isStopping_ && inbox_.empty() && core_.isIdle());
    }

    void obey() {
        std::optional<Error> failure;
        {
            std::lock_guard<std::mutex> const lock(mutex_);
            commands_.swap(inbox_);
            if (isStopping_ && !isDraining_) {
                failure = closed_;
            }
        }
        for (Command& command : commands_) {
            if (command.added != nullptr) {
                core_.add(std::move(command.added));
            } else {
                core_.cancel(command.id);
            }
        }
        commands_.clear();
        if (failure) {
            core_.failAll(*failure);
            core_.deliver();
        }
    }

    std::unique_ptr<StepEngine> engine_;
    EngineCore core_;
    std::mutex closeMutex_;
    std::mutex mutex_;  // guards what follows, up to the thread
    std::condition_variable news_;
    std::vector<Command> inbox_;
    std::optional<Error> closed_;
    bool isStopping_ = false;
    bool isDraining_ = false;
    std::vector<Command> commands_;  // of the stepping thread
    std::thread thread_;
};

Runtime::Runtime(std::unique_ptr<StepEngine> engine, RuntimeOptions options)
    : worker_(std::make_unique<Worker>(std::move(engine), options)) {}

Runtime::~Runtime() {
    worker_->close(false);
}

RequestId Runtime::submit(Request request, TokenCallback callback) {
    return worker_->submit(std::move(request), std::move(callback));
}

std::future<RequestResult> Runtime::generate(Request request) {
    auto promise = std::make_shared<std::promise<RequestResult>>();
    std::future<RequestResult> future = promise->get_future();
    request.streaming = false;
    submit(std::move(request), [promise](Update const& update) { promise->set_value(*update.result); });
    return future;
}

void Runtime::cancel(RequestId id) {
    worker_->cancel(id);
}

void Runtime::start() {
    worker_->start();
}

bool Runtime::step() {
    return worker_->step();
}

void Runtime::close(bool drain) {
    worker_->close(drain);
}

Limits const& Runtime::limits() const {
    return worker_->limits();
}

RuntimeStats Runtime::stats() const {
    return worker_->stats();
}

}  // namespace hspec_trt
