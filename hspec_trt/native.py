# SPDX-License-Identifier: Apache-2.0
"""Finds and loads the plugin library and checks it against the contract."""
