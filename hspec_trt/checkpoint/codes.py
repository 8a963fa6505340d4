# SPDX-License-Identifier: Apache-2.0
"""The one table of checkpoint fault codes: what each stands for. Codes are stable: none is ever given a new meaning."""

from __future__ import annotations

from typing import Final

CODES: Final[dict[str, str]] = {
    # files
    "C001": "a path in the checkpoint leaves its folder",
    "C002": "external data of an ONNX file lies outside its folder",
    "C003": "a file is shorter than its own header says",
    "C004": "the header length of a safetensors file is impossible",
    "C005": "the header of a safetensors file is not what the format asks for",
    "C006": "tensor ranges of a safetensors file overlap, leave a hole or do not fit their shape",
    "C007": "bytes follow the last tensor of a safetensors file",
    "C008": "an element type that is not supported",
    "C009": "the index of a sharded checkpoint does not fit its shards",
    "C010": "a file or folder is missing, or cannot be read",
    "C011": "a JSON file is damaged, too large, too deeply nested or has a duplicate key",
    "C012": "an architecture that is not supported",
    "C013": "a quantised Hugging Face checkpoint",
    "C014": "not a GGUF file that can be read: magic, version or byte order",
    "C015": "a GGUF file is truncated or its header is damaged",
    "C016": "a GGUF file of an architecture that is not supported",
    "C017": "a GGUF tensor of a quantisation that is not supported",
    "C018": "weights stored as pickle, which is never loaded",
    "C019": "GGUF metadata is missing or of the wrong type",
    # tensors
    "C020": "weights without a source, or checkpoint tensors without a use",
    "C021": "no tensor of the checkpoint has a known name",
    "C022": "a tensor has the wrong shape",
    "C023": "two tensors of the checkpoint are the source of one weight",
    "C024": "tie_word_embeddings is set but the head differs from the embedding",
    "C025": "a weight that is stored as integers",
    # configuration
    "C027": "a tokenizer that is damaged or contradicts itself",
    "C028": "one part of a GGUF file that was split",
    "C030": "fields of the configuration contradict each other",
    "C031": "a field has the wrong JSON type",
    "C032": "a field is out of range",
    "C033": "a field is missing",
    "C034": "the embedding has fewer rows than the vocabulary",
    "C035": "an option of the model that is not supported",
    "C036": "a token id of the configuration is outside the vocabulary",
    "C037": "layer_types does not fit the layers",
    "C040": "a rope scaling that is not supported",
}
