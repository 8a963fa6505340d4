# SPDX-License-Identifier: Apache-2.0
"""Running an engine: session, pages, step loop, text in and out."""
