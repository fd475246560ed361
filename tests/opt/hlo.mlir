// RUN: luminal-opt %s | filecheck %s
// RUN: luminal-opt %s | luminal-opt | filecheck %s

// Every kind of operand and attribute prints and parses back; constant dims are ints, dims are canonical.

// CHECK: luminal.graph @main [b in 0 to inf buckets {{\[}}1, 2 to 8, 9 to inf], s in 1 to 4096] (%x: !luminal.tensor<[b, s, 64], f32>, %w: !luminal.tensor<[64, 2*s], f32>)
// CHECK-SAME: -> (!luminal.tensor<[b, s, 2*s], f32>, !luminal.tensor<[s floordiv 2 + 1, s mod 3], i64>)
luminal.graph @main [s in 1 to 4096, b in 0 to inf buckets [2 to 8, 1, 9 to inf]] (%x : !luminal.tensor<[b, s, 64], f32>, %w : !luminal.tensor<[64, s + s], f32>)
    -> (!luminal.tensor<[b, s, 2*s], f32>, !luminal.tensor<[1 + s floordiv 2, s mod 3], i64>) {
  // CHECK-NEXT: %0 = hlo.matmul %x, %w {source = "model.py:3 in forward"} : !luminal.tensor<[b, s, 64], f32>, !luminal.tensor<[64, 2*s], f32> -> !luminal.tensor<[b, s, 2*s], f32>
  %0 = hlo.matmul %x, %w {source = "model.py:3 in forward"} : !luminal.tensor<[b, s, 64], f32>, !luminal.tensor<[64, 2*s], f32> -> !luminal.tensor<[b, s, 2*s], f32>
  // CHECK-NEXT: %1 = hlo.gelu %0 {approximate = "tanh"} : !luminal.tensor<[b, s, 2*s], f32>
  %1 = hlo.gelu %0 {approximate = "tanh"} : !luminal.tensor<[b, s, 2*s], f32>
  // CHECK-NEXT: %2 = hlo.layer_norm %1 {absent = ["weight", "bias"], axes = [2], epsilon = 1.0e-05} : !luminal.tensor<[b, s, 2*s], f32>
  %2 = hlo.layer_norm %1 {absent = ["weight", "bias"], axes = [2], epsilon = 1.0e-05} : !luminal.tensor<[b, s, 2*s], f32>
  // CHECK-NEXT: %3 = hlo.full {dtype = i64, shape = [s floordiv 2 + 1, s mod 3], value = -7} : -> !luminal.tensor<[s floordiv 2 + 1, s mod 3], i64>
  %3 = hlo.full {dtype = i64, shape = [s floordiv 2 + 1, s mod 3], value = -7} : -> !luminal.tensor<[s floordiv 2 + 1, s mod 3], i64>
  // CHECK-NEXT: luminal.return %2, %3
  luminal.return %2, %3 : !luminal.tensor<[b, s, 2*s], f32>, !luminal.tensor<[s floordiv 2 + 1, s mod 3], i64>
}
