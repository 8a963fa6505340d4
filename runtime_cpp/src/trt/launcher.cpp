// SPDX-License-Identifier: Apache-2.0
#include "trt/launcher.h"

#include <algorithm>

namespace hspec_trt::trt {
namespace {

// Numbers of the profiles that hspec_trt/engine/profiles.py builds.
constexpr int32_t kDecodeProfile = 0;
constexpr int32_t kMixedProfile = 1;
// Decode shapes that are kept; the one unused for longest goes first.
constexpr std::size_t kMaxShapes = 64;

}  // namespace

Launcher::Launcher(Plan& plan, Cuda const& cuda, PagePools& pools, bool useGraphs)
    : plan_(plan),
      cuda_(cuda),
      pools_(pools),
      useGraphs_(useGraphs),
      scratch_(cuda.allocate(plan.scratchBytes())),
      mixed_(context(kMixedProfile)) {}

Launcher::~Launcher() {
    forgetAddresses();
}

void Launcher::launch(StepShape const& shape, Block const& inputs, Block const& outputs) {
    if (shape.decode) {
        launchDecode(shape, inputs, outputs);
    } else {
        bind(*mixed_, inputs, outputs);
        mixed_->run(cuda_.stream());
        ++counts_.bound;
    }
    pools_.swap();
}

void Launcher::forgetAddresses() {
    for (auto& [shape, decoder] : decoders_) {
        drop(decoder);
    }
}

void Launcher::launchDecode(StepShape const& shape, Block const& inputs, Block const& outputs) {
    Decoder& decoder = this->decoder(shape);
    CUgraphExec graph = decoder.graphs[pools_.reading()];
    if (graph != nullptr) {
        ++counts_.replayed;
    } else {
        bind(*decoder.context, inputs, outputs);
        if (useGraphs_ && decoder.ran && decoder.context->canBeCaptured(cuda_.stream())) {
            graph = record(decoder);
        }
    }
    if (graph != nullptr) {
        cuda_.launch(graph);
        return;
    }
    decoder.context->run(cuda_.stream());
    decoder.ran = true;
    ++counts_.bound;
}

Launcher::Decoder& Launcher::decoder(StepShape const& shape) {
    auto found = decoders_.find(shape);
    if (found == decoders_.end()) {
        if (decoders_.size() >= kMaxShapes) {
            auto const oldest = std::min_element(decoders_.begin(), decoders_.end(), [](auto const& a, auto const& b) {
                return a.second.lastUse < b.second.lastUse;
            });
            cuda_.synchronize();
            drop(oldest->second);
            decoders_.erase(oldest);
        }
        Decoder made;
        made.context = context(kDecodeProfile);
        found = decoders_.emplace(shape, std::move(made)).first;
    }
    found->second.lastUse = ++uses_;
    return found->second;
}

void Launcher::bind(PlanContext& context, Block const& inputs, Block const& outputs) const {
    for (Place const& place : inputs.layout.places) {
        context.bindInput(place.tensor->name, inputs.address + place.offset, place.shape);
    }
    pools_.bind(context);
    for (Place const& place : outputs.layout.places) {
        context.bindOutput(place.tensor->name, outputs.address + place.offset, place.shape);
    }
}

CUgraphExec Launcher::record(Decoder& decoder) {
    try {
        cuda_.beginCapture();
        bool started = true;
        try {
            decoder.context->run(cuda_.stream());
        } catch (PlanError const&) {
            started = false;
        }
        CUgraphExec const graph = cuda_.endCapture();
        if (started) {
            decoder.graphs[pools_.reading()] = graph;
            ++counts_.recorded;
            return graph;
        }
        cuda_.destroy(graph);
    } catch (CudaError const&) {
        // The engine cannot be captured: its steps are launched one by one from now on.
    }
    useGraphs_ = false;
    return nullptr;
}

void Launcher::drop(Decoder& decoder) const {
    for (CUgraphExec& graph : decoder.graphs) {
        if (graph != nullptr) {
            cuda_.destroy(graph);
            graph = nullptr;
        }
    }
}

std::unique_ptr<PlanContext> Launcher::context(int32_t profile) {
    std::unique_ptr<PlanContext> made = plan_.context(profile, scratch_.device(), scratch_.bytes(), cuda_.stream());
    cuda_.synchronize();
    return made;
}

}  // namespace hspec_trt::trt
