# SPDX-License-Identifier: Apache-2.0
"""Configurations: frozen dataclasses for the target, the drafters, a build and a request, with every default."""
