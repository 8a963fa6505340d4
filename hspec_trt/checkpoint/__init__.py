# SPDX-License-Identifier: Apache-2.0
"""Checkpoints of targets and drafters: files checked before they are mapped, tensors by canonical name."""
