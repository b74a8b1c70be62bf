// SPDX-License-Identifier: Apache-2.0
// The planning questions of inference: how long a decoding step takes, how many ways a model may be
// split, what serves a load (sharding_semantics 6.5, 8.1, 8.5).
#pragma once

#include "dsl/dtype.h"
#include "sharding/chip.h"

namespace kref {

// A model that decodes one token for each of `batch` sequences on `chips` chips together.
struct DecodeStep {
  double chips = 1;
  double batch = 1;
  double parameters = 0;       // those a token is multiplied with
  double parameter_bytes = 0;  // of all that are read
  double cache_bytes = 0;      // of one sequence
  DType compute = DType::kBF16;
};

// Seconds: caches are read, then parameters are read or multiplied with, whichever takes longer.
double decode_seconds(const Chip& chip, const DecodeStep& step);
// The same when no product is compute-bound: everything is read once. The book's tables.
double decode_load_seconds(const Chip& chip, const DecodeStep& step);

// Chips among which weights read from HBM may be split until their collectives take longer:
// F / (B beta), of bf16 weights (s8: half). beta: hbm_to_link, or the book's rounded 8.
double decode_model_axis(double f, double batch, double beta);
// Chips beyond which a message of [B, D] activations is so small that its hops count: B D bytes
// over latency_bytes.
double latency_model_axis(double batch, double d, double bytes_per_element, double latency_bytes);

// Times by which fetching weights over links, as FSDP does, is slower than reading a share of them
// from HBM: Y beta. 144 on v5e, 16 ways.
double fsdp_decode_penalty(const Chip& chip, double y);

// ---- The MLP with weights that stay, split over both dimensions (6.5)

// Seconds of its collectives, X ways over D with one axis of links and N / X over F with two; and
// of those of the one-dimensional split, with three: 4BD/(3W). bf16.
double two_dimensional_seconds(const Chip& chip, double b, double d, double f, double n, double x);
double one_dimensional_seconds(const Chip& chip, double b, double d);
// The best X: sqrt(D N / (2 F)).
double two_dimensional_axis(double d, double f, double n);
// Chips from which it is the faster one: 32 (F/D) (9/16); 72 for F = 4 D, where the book prints 81.
double two_dimensional_from(double d, double f);

// ---- Serving

// Prefill servers for each decoding one: a prompt takes `prefill` seconds, and of `batch` sequences
// of `length` tokens each step of `step` seconds ends batch / length.
double prefill_servers(double prefill, double step, double batch, double length);
// Tokens of caches that a step frees when sequences of P + G tokens come and go: B (P + G) / G.
double evicted_tokens(double batch, double prompt, double generated);
// Bytes that free memory holds, over those of one sequence.
double cached_sequences(double chips, const Chip& chip, double parameter_bytes,
                        double sequence_bytes);

}  // namespace kref
