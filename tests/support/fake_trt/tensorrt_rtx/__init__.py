# SPDX-License-Identifier: Apache-2.0
"""A stand-in for the part of tensorrt_rtx that a build uses. It compiles nothing; HSPEC_FAKE_TRT says how it ends.

It keeps what it is given (profiles, architectures, weights) and writes that as JSON in place of a plan, so that a test
can see what TensorRT would have been asked for.
"""

import ctypes
import enum
import json
import os
import signal

__version__ = "1.0"

ILogger = type("ILogger", (), {"__init__": lambda self: None})
for level, name in enumerate(("INTERNAL_ERROR", "ERROR", "WARNING", "INFO", "VERBOSE")):
    setattr(ILogger, name, enum.IntEnum("Severity", "INTERNAL_ERROR ERROR WARNING INFO VERBOSE", start=0)(level))


class IProgressMonitor:
    def __init__(self):
        pass


class IStreamWriter:
    def __init__(self):
        pass


class NetworkDefinitionCreationFlag(enum.IntEnum):
    STRONGLY_TYPED = 1


class PreviewFeature(enum.Enum):
    ALIASED_PLUGIN_IO_10_03 = 1


class BuilderFlag(enum.Enum):
    REQUIRE_USER_ALLOCATION = 1


class ProfilingVerbosity(enum.Enum):
    DETAILED = 1


class LayerType(enum.Enum):
    SHUFFLE = 1
    PLUGIN_V3 = 2


class ComputeCapability(enum.Enum):
    SM80 = 80
    SM86 = 86
    SM89 = 89
    SM120 = 120


class _Layer:
    type = LayerType.SHUFFLE
    name = "reshape"


class _Network:
    num_layers = 1

    def get_layer(self, index):
        return _Layer()


class _Profile:
    def __init__(self):
        self.shapes = {}

    def set_shape(self, name, least, opt, most):
        self.shapes[name] = [list(least), list(opt), list(most)]


class _Config:
    def __init__(self):
        self.profiles, self.capabilities, self.features, self.flags = [], {}, [], []

    def set_flag(self, flag):
        self.flags.append(flag.name)

    def set_preview_feature(self, feature, on):
        self.features.append(feature.name)

    def add_optimization_profile(self, profile):
        self.profiles.append(profile.shapes)

    def set_compute_capability(self, capability, index):
        self.capabilities[index] = capability.name


class _ParserError:
    def node_operator(self):
        return "Frobnicate"

    def node_name(self):
        return "node_7"

    def desc(self):
        return "no importer"


class OnnxParser:
    num_errors = 1

    def __init__(self, network, logger):
        self.network = network
        network.weights = {}

    def load_model_proto(self, data):
        self.network.graph_bytes = len(data)
        return True

    def load_initializer(self, name, address, length):
        self.network.weights[name] = ctypes.string_at(address, min(length, 4)).hex()
        return os.environ["HSPEC_FAKE_TRT"] != "weight"

    def parse_model_proto(self):
        return os.environ["HSPEC_FAKE_TRT"] != "parse"

    def get_error(self, index):
        return _ParserError()


class Builder:
    def __init__(self, logger):
        self.logger = logger

    def create_network(self, flags):
        return _Network()

    def create_builder_config(self):
        return _Config()

    def create_optimization_profile(self):
        return _Profile()

    def build_serialized_network_to_stream(self, network, config, writer):
        way = os.environ["HSPEC_FAKE_TRT"]
        config.progress_monitor.phase_start("Determining refit engines", None, 2)
        config.progress_monitor.step_complete("Determining refit engines", 0)
        writer.write(b"half ")
        if way == "none":
            self.logger.log(ILogger.ERROR, "no kernel for this")
            return False
        if way == "raise":
            raise RuntimeError("from inside")
        if way in ("SIGKILL", "SIGABRT", "SIGSEGV"):
            os.kill(os.getpid(), signal.Signals[way])
        if way == "exit":
            os._exit(3)
        asked = {
            "weights": network.weights,
            "profiles": config.profiles,
            "capabilities": config.capabilities,
            "features": config.features,
            "flags": config.flags,
            "shim": os.path.realpath(os.environ["LD_LIBRARY_PATH"].split(":")[0] + "/libtensorrt_rtx.so"),
        }
        writer.write(json.dumps(asked).encode())
        return True
