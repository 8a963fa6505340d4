# SPDX-License-Identifier: Apache-2.0
"""The engine folder on disk: manifest, weights, hashes, versions; written whole or not at all."""

from hspec_trt.bundle.weights import StoredTensor, WeightSource, plan_weights, write_weights

__all__ = ["StoredTensor", "WeightSource", "plan_weights", "write_weights"]
