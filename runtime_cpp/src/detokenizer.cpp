// SPDX-License-Identifier: Apache-2.0
#include "detokenizer.h"

#include <algorithm>
#include <array>

namespace hspec_trt {
namespace {

constexpr char kReplacement[] = "\xEF\xBF\xBD";  // U+FFFD

bool endsWith(std::string const& text, std::string const& end) {
    return text.size() >= end.size() && text.compare(text.size() - end.size(), end.size(), end) == 0;
}

// Whether a text has a character that is not white space (of Unicode, as Python's str.strip takes it).
bool showsSomething(std::string const& text) {
    static std::array<std::string, 22> const spaces = {
        "\xC2\x85",     "\xC2\xA0",     "\xE1\x9A\x80", "\xE2\x80\x80", "\xE2\x80\x81", "\xE2\x80\x82",
        "\xE2\x80\x83", "\xE2\x80\x84", "\xE2\x80\x85", "\xE2\x80\x86", "\xE2\x80\x87", "\xE2\x80\x88",
        "\xE2\x80\x89", "\xE2\x80\x8A", "\xE2\x80\xA8", "\xE2\x80\xA9", "\xE2\x80\xAF", "\xE2\x81\x9F",
        "\xE3\x80\x80", "\x1C",         "\x1D",         "\x1E"};
    for (std::size_t at = 0; at < text.size();) {
        char const c = text[at];
        if (c == ' ' || (c >= '\t' && c <= '\r') || c == '\x1F') {
            ++at;
            continue;
        }
        auto const isHere = [&](std::string const& space) { return text.compare(at, space.size(), space) == 0; };
        auto const* space = std::find_if(spaces.begin(), spaces.end(), isHere);
        if (space == spaces.end()) {
            return true;
        }
        at += space->size();
    }
    return false;
}

}  // namespace

std::string IncrementalDecoder::push(std::vector<int32_t> const& ids) {
    std::size_t const before = window_.size();
    std::copy_if(ids.begin(), ids.end(), std::back_inserter(window_), [&](int32_t id) { return codec_->hasText(id); });
    if (window_.size() == before) {
        return "";
    }
    std::string const text = codec_->decode(window_);
    if (endsWith(text, kReplacement) || codec_->isByte(window_.back())) {
        return "";
    }
    std::string fresh = text.substr(std::min(shown_.size(), text.size()));
    slide(text);
    return fresh;
}

std::string IncrementalDecoder::flush() {
    std::string const text = codec_->decode(window_);
    std::string fresh = text.substr(std::min(shown_.size(), text.size()));
    slide(shown_ + fresh);
    return fresh;
}

void IncrementalDecoder::slide(std::string const& text) {
    std::vector<int32_t> tail(window_.begin() + static_cast<std::ptrdiff_t>(shownLen_), window_.end());
    std::string tailText = codec_->decode(tail);
    if (showsSomething(tailText)) {
        window_ = std::move(tail);
        shown_ = std::move(tailText);
    } else {
        shown_ = text;
    }
    shownLen_ = window_.size();
}

std::string TextStream::push(std::vector<int32_t> const& ids) {
    return stopped_ ? "" : filter(incremental_.push(ids), false);
}

std::string TextStream::flush() {
    return stopped_ ? "" : filter(incremental_.flush(), true);
}

std::string TextStream::filter(std::string const& fresh, bool last) {
    std::string text = held_ + fresh;
    if (!fresh.empty()) {
        std::size_t first = std::string::npos;
        for (std::string const& stop : stops_) {
            first = std::min(first, text.find(stop));
        }
        if (first != std::string::npos) {
            stopped_ = true;
            held_.clear();
            return text.substr(0, first);
        }
    }
    std::size_t const cut = text.size() - (last ? 0 : possibleStop(text));
    held_ = text.substr(cut);
    text.resize(cut);
    return text;
}

std::size_t TextStream::possibleStop(std::string const& text) const {
    std::size_t longest = 1;
    for (std::string const& stop : stops_) {
        longest = std::max(longest, stop.size());
    }
    for (std::size_t size = std::min(longest - 1, text.size()); size > 0; --size) {
        for (std::string const& stop : stops_) {
            if (stop.compare(0, size, text, text.size() - size, size) == 0) {
                return size;
            }
        }
    }
    return 0;
}

}  // namespace hspec_trt
