// RUN: luminal-opt %s -p simplify --split-input-file | filecheck %s

// Equal operations are one, and what nobody reads is gone.
// CHECK-LABEL: @common
luminal.graph @common (%x : !luminal.tensor<[4], f32>) -> (!luminal.tensor<[4], f32>) {
  // CHECK-NEXT: %[[E:.*]] = primitive.exp2 %x
  // CHECK-NEXT: %[[S:.*]] = primitive.add %[[E]], %[[E]]
  // CHECK-NEXT: luminal.return %[[S]]
  %0 = primitive.exp2 %x {base = "2"} : !luminal.tensor<[4], f32>
  %1 = primitive.exp2 %x {base = "2"} : !luminal.tensor<[4], f32>
  %2 = primitive.sqrt %x : !luminal.tensor<[4], f32>
  %3 = primitive.add %0, %1 : !luminal.tensor<[4], f32>
  luminal.return %3 : !luminal.tensor<[4], f32>
}

// -----

// x + 0.0 is no fold of floats: it makes 0.0 of -0.0. Nor are x * 0, x - x and x / x.
// CHECK-LABEL: @no_folds
luminal.graph @no_folds (%x : !luminal.tensor<[4], f32>)
    -> (!luminal.tensor<[4], f32>, !luminal.tensor<[4], f32>, !luminal.tensor<[4], f32>, !luminal.tensor<[4], f32>) {
  // CHECK: primitive.add %x
  // CHECK: primitive.mul %x
  // CHECK: primitive.add %x
  // CHECK: primitive.recip %x, %x
  %zero = primitive.const {bits = 0x0} : -> !luminal.tensor<[4], f32>
  %minus = primitive.const {bits = 0xbf800000} : -> !luminal.tensor<[4], f32>
  %0 = primitive.add %x, %zero : !luminal.tensor<[4], f32>
  %1 = primitive.mul %x, %zero : !luminal.tensor<[4], f32>
  %2 = primitive.mul %x, %minus : !luminal.tensor<[4], f32>
  %3 = primitive.add %x, %2 : !luminal.tensor<[4], f32>
  %4 = primitive.recip %x, %x {rounding = "none"} : !luminal.tensor<[4], f32>
  luminal.return %0, %1, %3, %4 : !luminal.tensor<[4], f32>, !luminal.tensor<[4], f32>, !luminal.tensor<[4], f32>, !luminal.tensor<[4], f32>
}

// -----

// x + -0.0 and x * 1 are, and for integers x + 0.
// CHECK-LABEL: @folds
luminal.graph @folds (%x : !luminal.tensor<[4], f32>, %i : !luminal.tensor<[4], i32>) -> (!luminal.tensor<[4], f32>, !luminal.tensor<[4], i32>) {
  // CHECK-NEXT: luminal.return %x, %i
  %negative = primitive.const {bits = 0x80000000} : -> !luminal.tensor<[4], f32>
  %one = primitive.const {bits = 0x3f800000} : -> !luminal.tensor<[4], f32>
  %zero = primitive.const {bits = 0x0} : -> !luminal.tensor<[4], i32>
  %0 = primitive.add %x, %negative : !luminal.tensor<[4], f32>
  %1 = primitive.mul %0, %one : !luminal.tensor<[4], f32>
  %2 = primitive.add %i, %zero : !luminal.tensor<[4], i32>
  luminal.return %1, %2 : !luminal.tensor<[4], f32>, !luminal.tensor<[4], i32>
}

// -----

// Division by a power of two is an exact product; by 3 it stays a division.
// CHECK-LABEL: @powers
luminal.graph @powers (%x : !luminal.tensor<[4], f32>) -> (!luminal.tensor<[4], f32>, !luminal.tensor<[4], f32>) {
  // CHECK: primitive.const {bits = 0x3e800000}
  // CHECK: primitive.mul %x
  // CHECK: primitive.recip %x
  %four = primitive.const {bits = 0x40800000} : -> !luminal.tensor<[4], f32>
  %three = primitive.const {bits = 0x40400000} : -> !luminal.tensor<[4], f32>
  %0 = primitive.recip %x, %four {rounding = "none"} : !luminal.tensor<[4], f32>
  %1 = primitive.recip %x, %three {rounding = "none"} : !luminal.tensor<[4], f32>
  luminal.return %0, %1 : !luminal.tensor<[4], f32>, !luminal.tensor<[4], f32>
}

// -----

// Views of one kind, one after another, are one.
// CHECK-LABEL: @views
luminal.graph @views [s in 0 to inf] (%x : !luminal.tensor<[s, 2, 3], f32>) -> (!luminal.tensor<[s, 2, 3], f32>) {
  // CHECK-NEXT: luminal.return %x
  %0 = primitive.permute %x {order = [2, 0, 1]} : !luminal.tensor<[s, 2, 3], f32> -> !luminal.tensor<[3, s, 2], f32>
  %1 = primitive.permute %0 {order = [1, 2, 0]} : !luminal.tensor<[3, s, 2], f32> -> !luminal.tensor<[s, 2, 3], f32>
  %2 = primitive.reshape %1 : !luminal.tensor<[s, 2, 3], f32> -> !luminal.tensor<[6*s], f32>
  %3 = primitive.reshape %2 : !luminal.tensor<[6*s], f32> -> !luminal.tensor<[s, 2, 3], f32>
  luminal.return %3 : !luminal.tensor<[s, 2, 3], f32>
}
