# SPDX-License-Identifier: Apache-2.0
"""Training drafters from the target's own states."""
