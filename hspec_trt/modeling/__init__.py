# SPDX-License-Identifier: Apache-2.0
"""Trainable PyTorch references of the drafters."""
