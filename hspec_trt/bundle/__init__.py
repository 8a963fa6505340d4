# SPDX-License-Identifier: Apache-2.0
"""The engine folder on disk: manifest, weights, hashes, versions; written whole or not at all."""

from hspec_trt.bundle.atomic import write_atomic
from hspec_trt.bundle.folder import (
    EngineFolder,
    FolderKind,
    check_output,
    check_place,
    new_folder,
    open_engine,
    record_file,
    refusals_told,
)
from hspec_trt.bundle.manifest import Artifact, FileRecord, Manifest
from hspec_trt.bundle.weights import StoredTensor, WeightSource, plan_weights, write_weights

__all__ = [
    "Artifact",
    "EngineFolder",
    "FileRecord",
    "FolderKind",
    "Manifest",
    "StoredTensor",
    "WeightSource",
    "check_output",
    "check_place",
    "new_folder",
    "open_engine",
    "plan_weights",
    "record_file",
    "refusals_told",
    "write_atomic",
    "write_weights",
]
