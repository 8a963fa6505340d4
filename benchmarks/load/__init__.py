# SPDX-License-Identifier: Apache-2.0
"""Load on a served engine: mixed requests of several clients at once, drafting on, off and auto."""
