// SPDX-License-Identifier: Apache-2.0
#include "hspec_trt/runtime/engine_folder.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "bundle/manifest.h"
#include "bundle/manifest_gen.h"
#include "hspec_trt/runtime/error.h"
#include "paths.h"
#include "sha256.h"
#include "utf8.h"

namespace hspec_trt {
namespace {

constexpr int64_t kSampleBlocks = 64;
constexpr int64_t kSampleBlockBytes = 16384;
constexpr std::size_t kReadBytes = std::size_t{1} << 20;

// What the system says against a path.
struct SystemError {
    int number;
    std::string path;
};

// Whether a path leads to a file (or, with S_IFDIR, a folder). Throws SystemError where the system will not say.
bool isOfKind(std::string const& path, mode_t kind) {
    struct stat status{};
    if (stat(path.c_str(), &status) == 0) {
        return (status.st_mode & S_IFMT) == kind;
    }
    if (errno == ENOENT || errno == ENOTDIR || errno == EBADF || errno == ELOOP) {
        return false;
    }
    throw SystemError{errno, path};
}

class File {
  public:
    explicit File(std::string path) : path_(std::move(path)), descriptor_(::open(path_.c_str(), O_RDONLY | O_CLOEXEC)) {
        struct stat status{};
        if (descriptor_ < 0 || fstat(descriptor_, &status) != 0) {
            int const number = errno;
            close();
            throw SystemError{number, path_};
        }
        size_ = status.st_size;
    }
    ~File() { close(); }
    File(File const&) = delete;
    File& operator=(File const&) = delete;

    int64_t size() const { return size_; }

    // At most `size` bytes from `offset`, fewer at the end of the file.
    std::string read(int64_t offset, std::size_t size) const {
        std::string bytes(size, '\0');
        std::size_t filled = 0;
        while (filled < size) {
            ssize_t const count =
                pread(descriptor_, &bytes[filled], size - filled, offset + static_cast<off_t>(filled));
            if (count < 0 && errno != EINTR) {
                throw SystemError{errno, path_};
            }
            if (count == 0) {
                break;
            }
            filled += count > 0 ? static_cast<std::size_t>(count) : 0;
        }
        bytes.resize(filled);
        return bytes;
    }

  private:
    void close() const {
        if (descriptor_ >= 0) {
            ::close(descriptor_);
        }
    }

    std::string path_;
    int descriptor_;
    int64_t size_ = 0;
};

std::string hashOf(File const& file) {
    Sha256 hash;
    for (int64_t at = 0; at < file.size(); at += static_cast<int64_t>(kReadBytes)) {
        std::string const block = file.read(at, kReadBytes);
        hash.update(block.data(), block.size());
    }
    return hash.hex();
}

// As hspec_trt.bundle.folder.sample_hash.
std::string sampleHashOf(File const& file) {
    if (file.size() <= kSampleBlocks * kSampleBlockBytes) {
        return hashOf(file);
    }
    Sha256 hash;
    int64_t const last = file.size() - kSampleBlockBytes;
    for (int64_t block = 0; block < kSampleBlocks; ++block) {
        std::string const bytes = file.read(last * block / (kSampleBlocks - 1), kSampleBlockBytes);
        hash.update(bytes.data(), bytes.size());
    }
    return hash.hex();
}

Fault changed(std::string found, std::string needed, std::string const& folder) {
    return {"L005", std::move(found), std::move(needed), folder, schema::kRebuild};
}

std::optional<Fault> fileFault(std::string const& folder, FileRecord const& record, bool whole) {
    std::string const& name = record.name;
    if (name.find('/') != std::string::npos || name.find('\0') != std::string::npos || name == "." || name == "..") {
        return Fault{"L005", "the manifest names " + shownText(name), "plain file names", folder, ""};
    }
    std::string const path = paths::joined(folder, name);
    if (!isOfKind(path, S_IFREG)) {
        return changed(name + " is missing", "", folder);
    }
    File const file(path);
    if (file.size() != record.size) {
        return changed(name + " has " + std::to_string(file.size()) + " bytes", std::to_string(record.size), folder);
    }
    bool const same = sampleHashOf(file) == record.sampleSha256 && (!whole || hashOf(file) == record.sha256);
    return same ? std::nullopt : std::optional(changed(name + " was changed after the build", "", folder));
}

Manifest opened(std::string const& path, bool whole) {
    std::string const manifestPath = paths::joined(path, schema::kManifestFile);
    if (!isOfKind(manifestPath, S_IFREG)) {
        std::string const found =
            isOfKind(path, S_IFDIR) ? path + " has no " + schema::kManifestFile : path + " is no folder";
        throw Error(Fault{"L007", found, "an engine folder", "", "Make one: hspec-trt build --output " + path});
    }
    File const file(manifestPath);
    Manifest manifest = Manifest::parse(file.read(0, static_cast<std::size_t>(file.size())), manifestPath);
    std::vector<Fault> faults;
    for (FileRecord const& record : manifest.files) {
        if (std::optional<Fault> found = fileFault(path, record, whole)) {
            faults.push_back(std::move(*found));
        }
    }
    if (!faults.empty()) {
        throw Error(std::move(faults));
    }
    return manifest;
}

[[noreturn]] void tell(SystemError const& error, std::string const& folder) {
    std::string const found = std::string(std::strerror(error.number)) + ": " + error.path;
    throw Error(Fault{"L008", found, "files that can be read", folder, ""});
}

}  // namespace

EngineFolder::EngineFolder(std::string path, std::shared_ptr<Manifest const> manifest)
    : path_(std::move(path)), manifest_(std::move(manifest)) {}

EngineFolder EngineFolder::open(std::string const& path, bool whole) {
    std::string const shown = paths::collapsed(path);
    if (!utf8::isValid(shown)) {
        throw Error(Fault{"L008", "the path " + shown + " is not UTF-8", "one that every backend can open", "", ""});
    }
    try {
        return {shown, std::make_shared<Manifest const>(opened(shown, whole))};
    } catch (SystemError const& error) {
        tell(error, shown);
    }
}

std::string const& EngineFolder::backend() const {
    return manifest_->backend;
}

Limits const& EngineFolder::limits() const {
    return manifest_->limits;
}

std::vector<int32_t> const& EngineFolder::eosIds() const {
    return manifest_->eosIds;
}

std::string EngineFolder::file(std::string const& name) const {
    std::vector<FileRecord> const& files = manifest_->files;
    bool const known =
        std::any_of(files.begin(), files.end(), [&name](auto const& record) { return record.name == name; });
    if (!known) {
        throw Error(Fault{"L006", "the engine has no " + name, "", path_, schema::kRebuild});
    }
    return paths::joined(path_, name);
}

std::optional<std::string> EngineFolder::text(std::string const& name) const {
    std::vector<FileRecord> const& files = manifest_->files;
    if (std::none_of(files.begin(), files.end(), [&name](auto const& record) { return record.name == name; })) {
        return std::nullopt;
    }
    try {
        File const file(paths::joined(path_, name));
        return file.read(0, static_cast<std::size_t>(file.size()));
    } catch (SystemError const& error) {
        tell(error, path_);
    }
}

}  // namespace hspec_trt
