// SPDX-License-Identifier: Apache-2.0
#include "trt/launcher.h"

#include <algorithm>

namespace hspec_trt::trt {
namespace {

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
        decoder.ran = decoder.refused = false;
    }
}

void Launcher::launchDecode(StepShape const& shape, Block const& inputs, Block const& outputs) {
    Decoder& decoder = this->decoder(shape);
    if (decoder.graph != nullptr) {
        ++counts_.replayed;
    } else {
        bind(*decoder.context, inputs, outputs);
        if (mayRecord(decoder)) {
            record(decoder);
        }
    }
    if (decoder.graph != nullptr) {
        cuda_.launch(decoder.graph);
        return;
    }
    decoder.context->run(cuda_.stream());
    decoder.ran = true;
    ++counts_.bound;
}

bool Launcher::mayRecord(Decoder const& decoder) {
    if (!useGraphs_ || !decoder.ran || decoder.refused) {
        return false;
    }
    bool const capturable = decoder.context->canBeCaptured(cuda_.stream());
    counts_.notCapturable += capturable ? 0 : 1;
    return capturable;
}

Launcher::Decoder& Launcher::decoder(StepShape const& shape) {
    std::pair const key(shape, static_cast<std::size_t>(pools_.reading()));
    auto found = decoders_.find(key);
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
        found = decoders_.emplace(key, std::move(made)).first;
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

void Launcher::record(Decoder& decoder) {
    try {
        cuda_.beginCapture();
        bool started = true;
        try {
            decoder.context->run(cuda_.stream());
        } catch (PlanError const&) {
            started = false;
        }
        decoder.graph = cuda_.endCapture();
        if (started) {
            ++counts_.recorded;
            return;
        }
        drop(decoder);
    } catch (CudaError const&) {
        // It cannot be captured: steps of this shape are launched one by one.
    }
    decoder.refused = true;
}

void Launcher::drop(Decoder& decoder) const {
    if (decoder.graph != nullptr) {
        cuda_.destroy(decoder.graph);
        decoder.graph = nullptr;
    }
}

std::unique_ptr<PlanContext> Launcher::context(int32_t profile) {
    std::unique_ptr<PlanContext> made = plan_.context(profile, scratch_.device(), scratch_.bytes(), cuda_.stream());
    cuda_.synchronize();
    return made;
}

}  // namespace hspec_trt::trt
