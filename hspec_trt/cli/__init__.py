# SPDX-License-Identifier: Apache-2.0
"""The ``hspec-trt`` command line."""
