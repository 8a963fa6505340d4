# SPDX-License-Identifier: Apache-2.0
"""The main path of a build on one screen: checkpoint, graph, engine, bundle."""
