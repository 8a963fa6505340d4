# SPDX-License-Identifier: Apache-2.0
"""The engine folder on disk: manifest, weights layout, hashes, versions; written whole or not at all."""
