//! Plans of programs for NVIDIA GPUs.

use crate::compile::backend::CudaBackend;
use crate::compile::step::Call;
use crate::conv::cudnn::Dnn;
use crate::target::gpu_target;
use bilevel_gpu::compile::passes::GpuPipeline;
use bilevel_gpu::compile::plan::PlannedBytes;
use bilevel_graph::{Program, Result};
use bilevel_plan::{Pass, Snapshot};

/// Everything that a run needs except the memory itself.
pub(crate) type Plan = bilevel_gpu::compile::plan::Plan<Call>;

/// Plans a valid program, with convolutions by cuDNN if given, and with fused attention if blocks have enough shared
/// memory.
pub(crate) fn plan(program: &Program, dnn: Option<&Dnn>, fuses_attention: bool) -> Result<Plan> {
    plan_with(program, dnn, fuses_attention, &GpuPipeline::new())
}

/// As [`plan`], with these passes.
pub(crate) fn plan_with(
    program: &Program,
    dnn: Option<&Dnn>,
    fuses_attention: bool,
    passes: &GpuPipeline,
) -> Result<Plan> {
    let target = gpu_target(dnn.is_some(), fuses_attention);
    bilevel_gpu::compile::plan::plan(program, &target, &CudaBackend { dnn }, passes)
}

/// Plans a program for a GPU with cuDNN, and shows the result of every pass. No GPU is needed: convolutions use our own
/// kernels.
pub fn observe_passes(
    program: &Program,
    passes: &GpuPipeline,
    mut show: impl FnMut(&'static Pass, &dyn Snapshot),
) -> Result<PlannedBytes> {
    program.validate()?;
    let (target, backend) = (gpu_target(true, true), CudaBackend { dnn: None });
    Ok(bilevel_gpu::compile::plan::observe(program, &target, &backend, passes, &mut show)?.bytes())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codegen::cuda_cpp::CudaCpp;
    use crate::compile::step::{Call, Step, Work};
    use bilevel_gpu::codegen::parts::Part;
    use bilevel_gpu::codegen::{Arg, Renderer};
    use bilevel_gpu::compile::step::{Access, Span};
    use bilevel_graph::conformance::{Size, random_program, varied_program};
    use bilevel_graph::{DType, Graph, Precision, gradient_or_zeros, nn};
    use bilevel_plan::Region;

    #[test]
    fn a_row_of_a_carried_table_is_changed_by_threads_for_that_row_alone() {
        let g = Graph::new();
        let (table, at) = (g.input("table", [1000, 300], DType::F32), g.input("at", [], DType::I32));
        let new = table.take(at).sin();
        let next = table + (new - table.take(at)).scatter_add(at, 0, 1000);
        let plan = plan(&Program::builder(&g).carry(table, next).build().unwrap(), None, true).unwrap();
        assert!(plan.steps().all(|step| matches!(step.work, Work::Kernel(_))), "nothing is copied");
        let threads = plan.kernels().map(|launch| launch.grid[0] * launch.grid[1] * launch.kernel.block).max().unwrap();
        assert!((300..=512).contains(&threads), "{threads}");
        assert!(plan.persistent_bytes + plan.arena_bytes < 3000, "no memory for another table");
    }

    #[test]
    fn the_second_pass_of_column_sums_runs_concurrently_with_readers_of_the_rows() {
        let g = Graph::new();
        let x = g.input("x", [4096, 768], DType::F32);
        let y = (x - x.max([1]).broadcast([0], [4096, 768])).exp();
        let builder = Program::builder(&g).output("rows", y).output("sums", y.sum([0]));
        let plan = plan(&builder.build().unwrap(), None, true).unwrap();
        let [rows, fold] = &plan.body[..] else { panic!("two kernels") };
        let writes = |step: &Step, output| step.writes.iter().any(|span| span.place.region == Region::Output(output));
        assert!(writes(rows, 0) && !writes(rows, 1) && writes(fold, 1) && !writes(fold, 0));
        assert!(rows.writes.iter().any(|span| fold.reads.iter().any(|other| other.meets(span))), "by the workspace");
    }

    #[test]
    fn overlapping_max_pools_have_no_check_and_no_kernel_reads_or_writes_the_record_of_failures() {
        let g = Graph::new();
        let x = g.input("x", [2, 3, 9, 9], DType::F32);
        let pool = nn::Pool2d { stride: [2, 2], padding: [1, 1], ..nn::Pool2d::of([3, 3]) };
        let loss = nn::max_pool2d(x, pool).square().sum_all();
        let slope = gradient_or_zeros(loss, &[x]).unwrap()[0];
        let program = Program::builder(&g).output("loss", loss).carry(x, x - slope).build().unwrap();
        let plan = plan(&program, None, true).unwrap();
        assert!(plan.kernels().any(|launch| launch.kernel.parts.has(Part::InlineGather)), "there is a gather");
        assert!(plan.checks.is_empty());
        assert!(plan.kernels().all(|launch| !launch.args.contains(&Arg::Error)));
    }

    /// Every operation has a word of its own in the record: the 1025th is not mistaken for the first.
    #[test]
    fn each_of_thousands_of_checks_reports_under_its_own_number() {
        let g = Graph::new();
        let at = g.input("at", [2], DType::I32);
        let mut builder = Program::builder(&g);
        const TABLES: usize = 1200;
        for rows in 0..TABLES {
            let table = g.input(format!("table {rows}"), [10 + rows, 9], DType::F32);
            builder = builder.output(rows.to_string(), table.take(at));
        }
        let plan = plan(&builder.build().unwrap(), None, true).unwrap();
        assert_eq!(plan.checks.len(), TABLES);
        let mut found = vec![0; TABLES];
        for launch in plan.kernels().filter(|launch| launch.kernel.can_fail) {
            // The arguments of each part: blocks, threads, table, indices, result, k, n, row length, record, operation.
            let words = launch.args.len() / launch.kernel.batch;
            for part in launch.args.chunks(words) {
                let [.., Arg::Count(n), Arg::Count(_), Arg::Error, Arg::Count(number)] = part else {
                    panic!("{part:?}")
                };
                assert_eq!(plan.checks[*number as usize].of.limit as u64, *n);
                found[*number as usize] += 1;
            }
        }
        assert!(found.iter().all(|&times| times == 1));
    }

    /// A check of the same indices runs before rows are added in place.
    #[test]
    fn rows_are_added_in_place_only_after_all_their_indices_were_checked() {
        let g = Graph::new();
        let (table, at) = (g.input("table", [1000, 300], DType::F32), g.input("at", [7], DType::I32));
        let next = table + table.take(at).sin().scatter_add(at, 0, 1000);
        let builder = Program::builder(&g).carry(table, next).carry(at, at.reverse([0]));
        let plan = plan(&builder.build().unwrap(), None, true).unwrap();
        let reporting: Vec<usize> = (0..plan.body.len()).filter(|&number| plan.body[number].work.can_fail()).collect();
        let heeding: Vec<usize> =
            (0..plan.body.len()).filter(|&number| plan.body[number].work.skips_after_failure()).collect();
        let writes_table = |step: &Step| step.writes.iter().any(|span| span.place.region == Region::Input(0));
        assert!(heeding.iter().any(|&number| writes_table(&plan.body[number])), "rows are added in place");
        assert_eq!(plan.checks.len(), 2, "of the gather and of the scatter");
        assert_eq!(reporting.len(), 2, "each is checked once");
        let dependencies = bilevel_gpu::schedule::streams::dependencies(&plan.body);
        for adding in heeding {
            let (mut before, mut next) = (vec![adding], 0);
            while next < before.len() {
                before.extend(&dependencies[before[next]]);
                next += 1;
            }
            assert!(reporting.iter().all(|number| before.contains(number)), "{dependencies:?}");
        }
    }

    /// Steps run concurrently unless one declares to write memory that the other declares to access.
    #[test]
    fn every_address_of_a_step_is_in_a_span_it_declares() {
        let mut found = 0;
        for number in 0..260 {
            let seed = number / 2;
            let graph = if number % 2 == 0 { Graph::new() } else { Graph::without_simplification() };
            let case = match seed % 3 {
                0 => random_program(seed, &graph, DType::F32, Size::small),
                _ => varied_program(seed, &graph, DType::F32, Size::small),
            };
            let case = case.unwrap();
            let precision = if seed % 5 == 0 { Precision::Bf16 } else { Precision::Full };
            let plan = plan(&case.program.with_precision(precision), None, true).unwrap();
            for step in plan.steps() {
                // A kernel that reads no workspace may be given one without an address.
                let reads_none = matches!(&step.work, Work::Kernel(launch) if launch.args.contains(&Arg::Count(0)));
                for Access { at: address, reads, writes } in step.work.accesses() {
                    let Arg::Memory(place, bytes) = address else { continue };
                    found += 1;
                    // A reversed view may start anywhere and end before its start; one without elements is never used.
                    let is_in = |spans: &[Span]| spans.iter().any(|span| span.holds(&address));
                    let said =
                        (!reads || is_in(&step.reads) || is_in(&step.writes)) && (!writes || is_in(&step.writes));
                    assert!(reads || writes, "{}: {address:?} of {step:?}", case.name);
                    let has_no_place =
                        reads_none && (place.region, place.offset as isize + bytes) == (Region::Arena, 0);
                    assert!(said || has_no_place, "{}: {address:?} of {step:?}", case.name);
                }
            }
        }
        assert!(found > 10_000, "{found} addresses");
    }

    #[test]
    fn a_bounded_value_between_two_fp16_products_is_written_as_fp16_by_its_loop() {
        let (rows, narrow, wide) = (1600, 768, 3072);
        let g = Graph::new();
        let shapes = [vec![narrow], vec![narrow], vec![narrow, wide], vec![wide], vec![wide, narrow], vec![narrow]];
        let names = ["gain", "offset", "first", "bias", "second", "last"];
        let weights: Vec<_> =
            names.iter().zip(&shapes).map(|(name, shape)| g.input(*name, shape, DType::F32)).collect();
        let x = g.input("x", [rows, narrow], DType::F32);
        let hidden = nn::linear(nn::layer_norm(x, weights[0], weights[1], 1e-6), weights[2], weights[3]);
        let loss = (nn::linear(nn::gelu(hidden), weights[4], weights[5]) - x).square().mean_all();
        let mut builder = Program::builder(&g);
        for (&weight, slope) in weights.iter().zip(gradient_or_zeros(loss, &weights).unwrap()) {
            builder = builder.carry(weight, weight - slope * 0.1);
        }
        let program = builder.build().unwrap().with_precision(Precision::Tf32);
        let plan = plan(&program, None, true).unwrap();
        let kernels: Vec<(&Step, String)> = plan
            .body
            .iter()
            .filter_map(|step| match &step.work {
                Work::Kernel(launch) => Some((step, CudaCpp.kernel(&launch.kernel, "kernel"))),
                _ => None,
            })
            .collect();
        // The GELU, and its gradient with partial sums for the bias gradient: neither computes an amax or stores 32
        // bits.
        let with_error_function = kernels.iter().filter(|(_, source)| source.contains("one_plus_erf("));
        for (step, source) in with_error_function.clone() {
            assert!(source.contains("scaled_to_f16(") && !source.contains("atomic_amax("), "{source}");
            assert_eq!(step.writes[0].bytes, 2 * rows * wide);
        }
        assert_eq!(with_error_function.count(), 2);
        let in_four_bytes = |step: &&Step| step.writes.iter().any(|span| span.bytes == 4 * rows * wide);
        assert!(plan.body.iter().filter(in_four_bytes).all(|step| matches!(step.work, Work::Library(Call::Gemm(_)))));
        // The amax of both rows of the norm, of the bias, of both weights and of the gradient of the loss.
        assert_eq!(kernels.iter().filter(|(_, source)| source.contains("atomic_amax(")).count(), 5);
        assert_eq!(kernels.len(), 19);
    }
}
