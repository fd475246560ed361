// RUN: luminal-opt %s --split-input-file --verify-diagnostics | filecheck %s

// CHECK: hlo.add: (4) and (5) do not broadcast: 4 and 5
luminal.graph @main (%x : !luminal.tensor<[4], f32>, %y : !luminal.tensor<[5], f32>) -> (!luminal.tensor<[4], f32>) {
  %0 = hlo.add %x, %y : !luminal.tensor<[4], f32>, !luminal.tensor<[5], f32> -> !luminal.tensor<[4], f32>
  luminal.return %0 : !luminal.tensor<[4], f32>
}

// -----

// CHECK: hlo.add: {{.*}}f32{{.*}}i64{{.*}}expected equal ones
luminal.graph @main (%x : !luminal.tensor<[4], f32>, %y : !luminal.tensor<[4], i64>) -> (!luminal.tensor<[4], f32>) {
  %0 = hlo.add %x, %y : !luminal.tensor<[4], f32>, !luminal.tensor<[4], i64> -> !luminal.tensor<[4], f32>
  luminal.return %0 : !luminal.tensor<[4], f32>
}

// -----

// CHECK: hlo.sum: axis 2 is outside a tensor of rank 1
luminal.graph @main (%x : !luminal.tensor<[4], f32>) -> (!luminal.tensor<[4], f32>) {
  %0 = hlo.sum %x {axes = [2], keepdim = false} : !luminal.tensor<[4], f32>
  luminal.return %0 : !luminal.tensor<[4], f32>
}

// -----

// CHECK: unknown attribute speed; primitive.exp2 has: base, strict
luminal.graph @main (%x : !luminal.tensor<[4], f32>) -> (!luminal.tensor<[4], f32>) {
  %0 = primitive.exp2 %x {base = "2", speed = 11} : !luminal.tensor<[4], f32>
  luminal.return %0 : !luminal.tensor<[4], f32>
}

// -----

// CHECK: no licence 'haste'; there are reassociate
luminal.graph @main (%x : !luminal.tensor<[4], f32>) -> (!luminal.tensor<[4], f32>) licences ["haste"] {
  luminal.return %x : !luminal.tensor<[4], f32>
}

// -----

// CHECK: terminates block in single-block region but is not a terminator
luminal.graph @main (%x : !luminal.tensor<[4], f32>) -> () {
  %0 = primitive.sqrt %x : !luminal.tensor<[4], f32>
}
