# SPDX-License-Identifier: Apache-2.0
"""Where the library of the fake lies."""
