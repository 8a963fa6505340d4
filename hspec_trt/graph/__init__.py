# SPDX-License-Identifier: Apache-2.0
"""The fused step as an ONNX graph: target, verification, drafter, and the custom ops as functions.

Start at `hspec_trt.graph.step.build_step`; its lines are the parts of a step. A new drafter is one module under
``drafters/`` (`hspec_trt.graph.drafters.frame` says what a step offers it).

What a session must keep so that a row's logits have the same bits whatever else is in the step (losslessness on the
CPU rests on it; ``tests/unit/graph/test_bit_equality.py`` checks it for one and two threads, weights repacked or not):

* N, T and K are at least 2. ONNX Runtime's CPU library multiplies a single row by another routine: for every Gemm
  where weights are not repacked (N = 1, K = 1), and always in attention where each query head has a K/V head of its own
  (T = 1).
* M * page_size is a multiple of 64 keys, so that softmax and products over keys are cut at the same places.

The graph does the rest: tables of cos and sin and the logits come in whole vectors (`layers.VECTOR_WIDTH`), and the
noise and the normalizer of a log-probability take logarithms in float64, because ONNX Runtime's Cos, Sin and Log give
other last bits in the tail of a tensor.
"""
