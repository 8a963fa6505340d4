// SPDX-License-Identifier: Apache-2.0
#include "trt/trt_engine.h"

#include <algorithm>
#include <numeric>
#include <stdexcept>
#include <tuple>
#include <utility>

#include "hspec_trt/runtime/error.h"
#include "step_checks.h"

namespace hspec_trt::trt {
namespace {

// Bytes for a step's inputs at first; more where a step needs more.
constexpr std::size_t kFirstBlock = std::size_t{1} << 16;

[[noreturn]] void failed(std::exception const& error) {
    throw Error(Fault{"R302", std::string("the step failed: ") + error.what(), "", "tensorrt", ""});
}

}  // namespace

TrtEngine::TrtEngine(std::unique_ptr<Cuda> cuda, std::unique_ptr<Plan> plan, PlanTensors tensors, Limits const& limits,
                     bool aliased, bool useGraphs)
    : cuda_(std::move(cuda)),
      plan_(std::move(plan)),
      tensors_(std::move(tensors)),
      limits_(limits),
      feedback_(limits.extensions.feedback),
      pools_(*cuda_, tensors_.pools, aliased) {
    limits_.pageBytes = pools_.pageBytes();
    inputs_ = cuda_->allocate(kFirstBlock);
    outputs_ = cuda_->allocate(mostOutputBytes());
    for (Flight& flight : flights_) {
        flight.inputs = cuda_->allocateHost(kFirstBlock);
        flight.outputs = cuda_->allocateHost(outputs_.bytes());
        flight.event = cuda_->createEvent();
    }
    launcher_ = std::make_unique<Launcher>(*plan_, *cuda_, pools_, useGraphs);
}

TrtEngine::~TrtEngine() {
    try {
        cuda_->makeCurrent();
        cuda_->synchronize();
    } catch (CudaError const&) {
        // The device failed, which `finish` told; what is left is to give things back.
    }
    for (Flight& flight : flights_) {
        cuda_->destroy(flight.event);
    }
}

void TrtEngine::allocate(int32_t numPages) {
    followable_ = false;
    cuda_->makeCurrent();
    cuda_->synchronize();
    launcher_->forgetAddresses();
    pools_.allocate(numPages);
}

void TrtEngine::launch(StepInputs const& inputs) {
    checkStep(inputs, limits_, numPages());
    bool const takesNext = std::any_of(tensors_.inputs.begin(), tensors_.inputs.end(),
                                       [](Tensor const& tensor) { return tensor.name == contract::kNextIds.name; });
    if (takesNext && inputs.nextIds.empty()) {
        throw Error(Fault{"R310", "next_ids is missing", "the token after each row's", "step inputs", ""});
    }
    start(inputs, false);
}

bool TrtEngine::canFollow() const {
    return followable_;
}

void TrtEngine::follow(std::vector<int32_t> const& pageTable, int32_t pagesPerRow,
                       std::vector<int32_t> const& mostContext) {
    if (!followable_) {
        throw Error(Fault{"R310", "the last step cannot be followed", "drafts for every row, in order", "", ""});
    }
    int32_t const rows = last_.numRows;
    int32_t const width = limits_.numDrafts + 1;
    StepInputs inputs = std::move(last_);
    followable_ = false;
    inputs.contextLens = mostContext;  // for the check; the device has those that are
    for (int32_t row = 0; row <= rows; ++row) {
        inputs.cuQueryLens[static_cast<std::size_t>(row)] = row * width;
    }
    inputs.cuVerifyLens = inputs.cuQueryLens;
    inputs.longestQuery = width;
    inputs.inputIds.assign(static_cast<std::size_t>(rows * width), 0);
    inputs.querySlots.resize(inputs.inputIds.size());
    std::iota(inputs.querySlots.begin(), inputs.querySlots.end(), 0);
    inputs.verifyRows = inputs.querySlots;
    inputs.pageTable = pageTable;
    inputs.pagesPerRow = pagesPerRow;
    std::fill(inputs.nextIds.begin(), inputs.nextIds.end(), 0);
    checkStep(inputs, limits_, numPages());
    start(inputs, true);
}

void TrtEngine::drop() {
    finished_ = launched_;
    followable_ = false;
}

void TrtEngine::start(StepInputs const& inputs, bool fedBack) {
    if (launched_ - finished_ >= kInFlight) {
        throw std::logic_error("a step is launched before those before it are finished");
    }
    followable_ = false;
    Sizes const sizes = Sizes::of(shapeFor(inputs, limits_), inputs.extras, limits_);
    Layout const layout = Layout::of(tensors_.inputs, sizes);
    Flight& flight = flights_[launched_ % kInFlight];
    Layout const& before = flights_[(launched_ + kInFlight - 1) % kInFlight].layout;
    try {
        cuda_->makeCurrent();
        cuda_->wait(flight.event);
        reserve(flight, layout.bytes);
        flight.layout = Layout::of(tensors_.outputs, sizes);
        flight.rows = static_cast<std::size_t>(inputs.numRows);
        flight.drafts = inputs.draftRows.size();
        flight.started = std::chrono::steady_clock::now();
        writeInputs(inputs, layout, flight.inputs.host());
        cuda_->upload(inputs_.device(), flight.inputs.host(), layout.bytes);
        if (fedBack) {
            feedBack(before, layout, inputs);
        }
        launcher_->launch(sizes.shape, {layout, inputs_.device()}, {flight.layout, outputs_.device()});
        cuda_->download(flight.outputs.host(), outputs_.device(), flight.layout.bytes);
        cuda_->record(flight.event);
    } catch (CudaError const& error) {
        failed(error);
    } catch (PlanError const& error) {
        failed(error);
    }
    ++launched_;
    followable_ = feedback_ && canBeFollowed(inputs);
    if (followable_) {
        last_ = inputs;
    }
}

void TrtEngine::reserve(Flight& flight, std::size_t bytes) {
    if (flight.inputs.bytes() < bytes) {
        flight.inputs = cuda_->allocateHost(2 * bytes);
    }
    if (inputs_.bytes() < bytes) {
        cuda_->synchronize();
        launcher_->forgetAddresses();
        inputs_ = cuda_->allocate(2 * bytes);
    }
}

void TrtEngine::feedBack(Layout const& source, Layout const& target, StepInputs const& inputs) const {
    for (auto const& [output, input, count] :
         {std::tuple<char const*, char const*, std::size_t>{"next_input_ids", "input_ids", inputs.inputIds.size()},
          {"next_context_lens", "context_lens", inputs.contextLens.size()}}) {
        cuda_->copy(inputs_.device() + target.find(input)->offset, outputs_.device() + source.find(output)->offset,
                    count * sizeof(int32_t));
    }
}

void TrtEngine::finish(StepOutputs& outputs) {
    if (finished_ == launched_) {
        throw std::logic_error("no step is on its way");
    }
    Flight const& flight = flights_[finished_++ % kInFlight];
    try {
        cuda_->makeCurrent();
        cuda_->wait(flight.event);
    } catch (CudaError const& error) {
        failed(error);
    }
    readOutputs(flight.layout, flight.outputs.host(), flight.rows, flight.drafts, outputs);
    // The device began a step that went ahead when the one before was done.
    auto const began = std::max(flight.started, read_);
    read_ = std::chrono::steady_clock::now();
    outputs.seconds = std::chrono::duration<double>(read_ - began).count();
}

void TrtEngine::scrub(std::vector<int32_t> const& pages) {
    try {
        cuda_->makeCurrent();
        pools_.scrub(pages);
    } catch (CudaError const& error) {
        failed(error);
    }
}

std::size_t TrtEngine::mostOutputBytes() const {
    StepShape most;
    most.R = limits_.maxRows;
    most.K = most.R * (limits_.numDrafts + 1);
    most.D = most.R;
    Sizes sizes{most, limits_.numDrafts, limits_.vocabSize};
    sizes.tops = most.K;
    return Layout::of(tensors_.outputs, sizes).bytes;
}

}  // namespace hspec_trt::trt
