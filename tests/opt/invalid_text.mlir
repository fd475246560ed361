// RUN: luminal-opt %s --split-input-file --parsing-diagnostics | filecheck %s

// CHECK: dim t is not declared by the graph; declared: s
luminal.graph @main [s in 0 to inf] (%x : !luminal.tensor<[t], f32>) -> (!luminal.tensor<[t], f32>) {
  luminal.return %x : !luminal.tensor<[t], f32>
}

// -----

// CHECK: no dtype f31; there are f64, f32
luminal.graph @main (%x : !luminal.tensor<[4], f31>) -> () {
  luminal.return
}

// -----

// CHECK: buckets of dim s overlap at 4: [1 to 4, 4 to inf]
luminal.graph @main [s in 0 to inf buckets [1 to 4, 4 to inf]] () -> () {
  luminal.return
}

// -----

// CHECK: bucket 0 to 0 of dim s in 1 to 8 is empty or leaves the dim's range
luminal.graph @main [s in 1 to 8 buckets [0]] () -> () {
  luminal.return
}

// -----

// CHECK: the range of dim s is empty: 5 to 2
luminal.graph @main [s in 5 to 2] () -> () {
  luminal.return
}

// -----

// CHECK: the graph's result types differ from those that it returns
luminal.graph @main (%x : !luminal.tensor<[4], f32>) -> (!luminal.tensor<[5], f32>) {
  luminal.return %x : !luminal.tensor<[4], f32>
}

// -----

// CHECK: Operation hlo.nonsense is not registered
luminal.graph @main (%x : !luminal.tensor<[4], f32>) -> (!luminal.tensor<[4], f32>) {
  %0 = hlo.nonsense %x : !luminal.tensor<[4], f32>
  luminal.return %0 : !luminal.tensor<[4], f32>
}
