// RUN: luminal-opt %s -p lower-hlo,simplify --print-ir-after-all 2>&1 | filecheck %s
// RUN: luminal-opt %s -p lower-hlo,simplify --print-ir-after-all | filecheck %s --check-prefix OUT

// stdout has the result alone (OUT), stderr the module after each pass.

// OUT: primitive.recip
// OUT-NOT: // IR after
// CHECK: // IR after lower-hlo
// CHECK: primitive.recip
// CHECK: // IR after simplify
// CHECK: primitive.recip
luminal.graph @main (%x : !luminal.tensor<[4], f32>) -> (!luminal.tensor<[4], f32>) {
  %0 = hlo.div %x, %x : !luminal.tensor<[4], f32>
  luminal.return %0 : !luminal.tensor<[4], f32>
}
