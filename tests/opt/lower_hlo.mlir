// RUN: luminal-opt %s -p lower-hlo --split-input-file | filecheck %s

// A division is one rounding, not a product with a reciprocal.
// CHECK-LABEL: @division
luminal.graph @division (%x : !luminal.tensor<[4], f32>, %y : !luminal.tensor<[4], f32>) -> (!luminal.tensor<[4], f32>) {
  // CHECK-NEXT: %0 = primitive.recip %x, %y {rounding = "none"} : !luminal.tensor<[4], f32>
  // CHECK-NEXT: luminal.return %0
  %0 = hlo.div %x, %y : !luminal.tensor<[4], f32>
  luminal.return %0 : !luminal.tensor<[4], f32>
}

// -----

// exp is exp2 with base e, not exp2 of a rounded product.
// CHECK-LABEL: @exponential
luminal.graph @exponential (%x : !luminal.tensor<[4], f64>) -> (!luminal.tensor<[4], f64>) {
  // CHECK-NEXT: primitive.exp2 %x {base = "e", source = "a.py:1"} : !luminal.tensor<[4], f64>
  %0 = hlo.exp %x {source = "a.py:1"} : !luminal.tensor<[4], f64>
  luminal.return %0 : !luminal.tensor<[4], f64>
}

// -----

// A product is a reduction of its own, not exp of a sum of logarithms.
// CHECK-LABEL: @product
luminal.graph @product [s in 0 to inf] (%x : !luminal.tensor<[s, 3], i64>) -> (!luminal.tensor<[s], i64>) {
  // CHECK-NEXT: primitive.sum_reduce %x {axes = [1], monoid = "prod"} : !luminal.tensor<[s, 3], i64> -> !luminal.tensor<[s], i64>
  %0 = hlo.prod %x {axes = [1], keepdim = false} : !luminal.tensor<[s, 3], i64> -> !luminal.tensor<[s], i64>
  luminal.return %0 : !luminal.tensor<[s], i64>
}

// -----

// A choice is a select, not a product that makes NaN of an infinity.
// CHECK-LABEL: @choice
luminal.graph @choice (%c : !luminal.tensor<[4], bool>, %x : !luminal.tensor<[4], f32>) -> (!luminal.tensor<[4], f32>) {
  // CHECK: primitive.select %c, %x
  // CHECK-NOT: primitive.mul
  %zero = hlo.full {dtype = f32, shape = [4], value = 0.0} : -> !luminal.tensor<[4], f32>
  %0 = hlo.where %c, %x, %zero : !luminal.tensor<[4], bool>, !luminal.tensor<[4], f32>, !luminal.tensor<[4], f32> -> !luminal.tensor<[4], f32>
  luminal.return %0 : !luminal.tensor<[4], f32>
}

// -----

// Broadcasting becomes explicit; the sum of a matrix product is a product and a sum.
// CHECK-LABEL: @matmul
luminal.graph @matmul [s in 1 to 4096] (%x : !luminal.tensor<[s, 64], f32>, %w : !luminal.tensor<[64, 32], f32>)
    -> (!luminal.tensor<[s, 32], f32>) {
  // CHECK: primitive.expand {{.*}} -> !luminal.tensor<[s, 32, 64], f32>
  // CHECK: %[[PRODUCT:.*]] = primitive.mul {{.*}} : !luminal.tensor<[s, 32, 64], f32>
  // CHECK-NEXT: primitive.sum_reduce %[[PRODUCT]] {axes = [2], monoid = "sum"} : !luminal.tensor<[s, 32, 64], f32> -> !luminal.tensor<[s, 32], f32>
  %0 = hlo.matmul %x, %w : !luminal.tensor<[s, 64], f32>, !luminal.tensor<[64, 32], f32> -> !luminal.tensor<[s, 32], f32>
  luminal.return %0 : !luminal.tensor<[s, 32], f32>
}

// -----

// bf16 sums accumulate in f32.
// CHECK-LABEL: @narrow
luminal.graph @narrow (%x : !luminal.tensor<[8], bf16>) -> (!luminal.tensor<[], bf16>) {
  // CHECK-NEXT: primitive.sum_reduce %x {axes = [0], monoid = "sum"} : !luminal.tensor<[8], bf16> -> !luminal.tensor<[], bf16>
  %0 = hlo.sum %x {axes = [0], keepdim = false} : !luminal.tensor<[8], bf16> -> !luminal.tensor<[], bf16>
  luminal.return %0 : !luminal.tensor<[], bf16>
}
