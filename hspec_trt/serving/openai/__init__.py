# SPDX-License-Identifier: Apache-2.0
"""HTTP server with OpenAI's interface over one loaded engine; needs the extra ``serve``."""
