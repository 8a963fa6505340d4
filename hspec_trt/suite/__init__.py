# SPDX-License-Identifier: Apache-2.0
"""Drafters compared on real prompts: what they get accepted, what a step costs, what they keep in memory."""
