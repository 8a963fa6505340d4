# SPDX-License-Identifier: Apache-2.0
"""Measurements: each script prints the figures that README and docs quote, with spread, from one run."""
