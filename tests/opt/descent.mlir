// RUN: luminal-opt %s -p lower-hlo,simplify,add-regions | filecheck %s --check-prefix REGION
// RUN: luminal-opt %s -p lower-hlo,simplify,add-regions,schedule-regions | filecheck %s --check-prefix SCHEDULE
// RUN: luminal-opt %s -p lower-hlo,simplify,add-regions,schedule-regions,place-regions | filecheck %s --check-prefix PLACED
// RUN: luminal-opt %s -p lower-hlo,simplify,add-regions,schedule-regions | luminal-opt -p place-regions | luminal-opt | filecheck %s --check-prefix PLACED
// RUN: not luminal-opt %s -p lower-hlo,add-regions,place-regions 2>&1 | filecheck %s --check-prefix UNSCHEDULED

// From named ops to explicit loops. Two equal layers are one region.

// REGION: luminal.graph @main
// REGION: "kernel.region"() <{sym_name = "main_0", header = ["symbols d0 in 1 to 4096", "index i0 = d0", "index i1 = 64", "index r0 = 64", "argument 0 = f32 [64*d0]", "argument 1 = f32 [4096]"]
// REGION-NEXT: %[[X:.*]] = kernel.term "load 0 [(64)*i0 + r0]" : () -> !kernel.value<"f32 [i0 r0]">
// REGION-NEXT: %[[W:.*]] = kernel.term "load 1 [i1 + (64)*r0]" : () -> !kernel.value<"f32 [i1 r0]">
// REGION-NEXT: %[[P:.*]] = kernel.term "mul"(%[[X]], %[[W]])
// REGION-NEXT: %[[S:.*]] = kernel.term "reduce.sum [r0]"(%[[P]])
// REGION-NEXT: "kernel.output"(%[[S]]) <{where = "% at [(64)*i0 + i1] of [64*d0] over [i0 i1]"}>
// REGION-NOT: sym_name = "main_1"

// SCHEDULE: schedule = "out0: i0:*:parallel@rows i1:*@panel r0:{{.*}}i1:8:lane"

// PLACED: kernel.function @main_0 [d0 in 1 to 4096]
// PLACED: "kernel.parallel"
// PLACED: "kernel.for"
// PLACED: "kernel.load"
// PLACED: "kernel.store"

// UNSCHEDULED: luminal-opt: kernel.region main_0 has no schedule

luminal.graph @main [s in 1 to 4096] (%x : !luminal.tensor<[s, 64], f32>, %v : !luminal.tensor<[64, 64], f32>, %w : !luminal.tensor<[64, 64], f32>)
    -> (!luminal.tensor<[s, 64], f32>) {
  %0 = hlo.matmul %x, %v : !luminal.tensor<[s, 64], f32>, !luminal.tensor<[64, 64], f32> -> !luminal.tensor<[s, 64], f32>
  %1 = hlo.matmul %0, %w : !luminal.tensor<[s, 64], f32>, !luminal.tensor<[64, 64], f32> -> !luminal.tensor<[s, 64], f32>
  luminal.return %1 : !luminal.tensor<[s, 64], f32>
}
