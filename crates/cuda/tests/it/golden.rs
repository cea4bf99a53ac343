//! The text of kernels, held to what is stored: a change in how kernels are written shows up here. Run with
//! `UPDATE_GOLDEN=1` to store what is written now.

use bilevel_cuda::kernel_texts;
use bilevel_graph::{DType, Graph, Precision, Program, RandomKind, Tensor, gradient, nn};
use std::path::Path;

fn holds(name: &str, make: impl FnOnce(&Graph) -> Program) {
    let program = make(&Graph::new());
    let text = kernel_texts(&program).unwrap().join("\n");
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(format!("{name}.cu"));
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, &text).unwrap();
    }
    let stored = std::fs::read_to_string(&path).unwrap_or_default();
    assert_eq!(text, stored, "{name} is not what is stored; if it should be, run the tests with UPDATE_GOLDEN=1");
}

fn output(graph: &Graph, value: Tensor) -> Program {
    Program::builder(graph).output("y", value).build().unwrap()
}

#[test]
fn an_update_with_noise_is_one_kernel_that_moves_16_bytes_at_once() {
    holds("update", |g| {
        let (x, slope) = (g.input("x", [4096], DType::F32), g.input("slope", [4096], DType::F32));
        let noise = g.input("key", [2], DType::I32).random(g.step(), RandomKind::Normal, 1, [4096], DType::F32);
        Program::builder(g).carry(x, x - slope * 0.01 + noise * 1e-3).build().unwrap()
    });
}

#[test]
fn updates_with_noise_of_leaves_of_all_sizes_are_one_kernel() {
    holds("updates", |g| {
        let key = g.input("key", [2], DType::I32);
        let mut builder = Program::builder(g);
        for (stream, length) in [4096, 8192, 40_000].into_iter().enumerate() {
            let x = g.input(format!("x{stream}"), [length], DType::F32);
            let noise = key.random(g.step(), RandomKind::Normal, stream as u32, [length], DType::F32);
            builder = builder.carry(x, x.cos() + noise * 1e-3);
        }
        builder.build().unwrap()
    });
}

#[test]
fn a_softmax_is_one_kernel_in_which_threads_share_rows() {
    holds("softmax", |g| {
        let x = g.input("x", [320, 197], DType::F32);
        let e = (x - x.max([1]).broadcast([0], [320, 197])).exp();
        output(g, e / e.sum([1]).broadcast([0], [320, 197]))
    });
}

#[test]
fn an_attention_in_bf16_is_one_kernel_and_so_is_its_derivative_with_respect_to_the_queries() {
    holds("fused_attention", |g| {
        let [q, k, v] = ["q", "k", "v"].map(|name| g.input(name, [2, 8, 104, 32], DType::F32));
        let y = nn::scaled_dot_product_attention(q, k, v, None);
        let slopes = gradient(y.sin().sum_all(), &[q, k]).unwrap();
        let builder = Program::builder(g).output("y", y).output("q", slopes[0].unwrap());
        builder.output("k", slopes[1].unwrap()).build().unwrap().with_precision(Precision::Bf16)
    });
}

/// Reductions over either axis of the rows of a softmax.
fn parts_of_rows(g: &Graph, shape: [usize; 3]) -> Program {
    let x = g.input("x", shape, DType::F32);
    let over_rows = |rows: Tensor| rows.broadcast([0], shape);
    let e = (x - over_rows(x.max([1, 2]))).exp();
    let shares = e / over_rows(e.sum([1, 2]));
    let outputs = [("down", shares.sum([1])), ("across", shares.sum([2])), ("most", shares.sin().max([2]))];
    let builder = outputs.into_iter().fold(Program::builder(g), |builder, (name, y)| builder.output(name, y));
    builder.build().unwrap()
}

#[test]
fn reductions_over_parts_of_rows_are_done_in_the_kernel_that_computes_the_rows() {
    holds("segment_reduce", |g| parts_of_rows(g, [6, 4, 5]));
}

#[test]
fn threads_of_a_long_row_share_the_results_of_its_parts() {
    holds("segment_reduce_long", |g| parts_of_rows(g, [300, 28, 28]));
}

/// The gradients of a layer norm and, with its result, of the gains and offsets of it.
fn layer_norm(g: &Graph, rows: usize, length: usize) -> Program {
    let shape = [rows, length];
    let (x, slope) = (g.input("x", shape, DType::F32), g.input("slope", shape, DType::F32));
    let (gain, offset) = (g.input("gain", [length], DType::F32), g.input("offset", [length], DType::F32));
    let normed = nn::layer_norm(x, gain, offset, 1e-5);
    let slopes = gradient((normed * slope).sum_all(), &[x, gain, offset]).unwrap();
    let builder = Program::builder(g).output("x", slopes[0].unwrap());
    builder.output("gain", slopes[1].unwrap()).output("offset", slopes[2].unwrap()).build().unwrap()
}

#[test]
fn the_gradients_of_a_layer_norm_over_many_rows_are_one_kernel_and_a_fold() {
    holds("layer_norm", |g| layer_norm(g, 1576, 768));
}

#[test]
fn a_sum_of_squares_is_a_kernel_and_a_fold() {
    holds("sum_of_squares", |g| output(g, g.input("x", [100_000], DType::F32).square().sum_all()));
}

#[test]
fn a_sum_of_columns_has_threads_side_by_side() {
    holds("column_reduce", |g| output(g, g.input("x", [512, 96], DType::F32).sum([0])));
}

#[test]
fn a_row_that_is_added_to_a_carried_table_is_a_kernel_over_that_row() {
    holds("add_rows", |g| {
        let (table, at) = (g.input("table", [1000, 300], DType::F32), g.input("at", [], DType::I32));
        let row = g.input("add_rows", [300], DType::F32);
        Program::builder(g).carry(table, table + row.scatter_add(at, 0, 1000)).build().unwrap()
    });
}

#[test]
fn short_rows_are_gathered_in_the_loop_that_computes_their_indices() {
    holds("inline_gather", |g| {
        let (table, x) = (g.input("table", [3, 10, 4], DType::F32), g.input("x", [3, 200], DType::F32));
        let found = table.gather((x * 9.0).convert(DType::I32), 1);
        output(g, found.index(2, 0) + x * found.index(2, 3))
    });
}

#[test]
fn of_two_operands_across_the_sum_of_a_product_in_tf32_one_is_transposed() {
    holds("transpose", |g| {
        // Rows that do not begin at multiples of 16 bytes in two bytes for each number.
        let (x, y) = (g.input("x", [1576, 764], DType::F32), g.input("y", [1576, 3076], DType::F32));
        output(g, x.t().matmul(y)).with_precision(Precision::Tf32)
    });
}

#[test]
fn operands_of_a_large_tf32_product_are_scaled_to_fp16_and_its_reader_unscales_the_result() {
    holds("scaled_fp16", |g| {
        let (x, y) = (g.input("x", [1576, 768], DType::F32), g.input("y", [1576, 3072], DType::F32));
        output(g, x.tanh().t().matmul(y).exp()).with_precision(Precision::Tf32)
    });
}

#[test]
fn a_gelu_between_two_large_tf32_products_is_written_as_fp16_by_its_loop() {
    holds("range_analysis", |g| {
        let (x, w) = (g.input("x", [1600, 768], DType::F32), g.input("w", [768, 3072], DType::F32));
        let (bias, v) = (g.input("bias", [3072], DType::F32), g.input("v", [3072, 768], DType::F32));
        output(g, nn::linear(nn::gelu(nn::linear(x, w, bias)), v, None)).with_precision(Precision::Tf32)
    });
}

#[test]
fn the_gradient_of_overlapping_patches_is_a_kernel_that_reads_each_once() {
    holds("pad_sum", |g| {
        let x = g.input("x", [64, 40], DType::F32);
        let pieces = x.slice(1, 0, 30).sin() + x.slice(1, 4, 34).exp() + x.slice(1, 10, 40).tanh();
        output(g, gradient(pieces.sum_all(), &[x]).unwrap()[0].unwrap())
    });
}

#[test]
fn the_gradient_of_a_pool_is_a_select_in_the_loop_that_reads_it() {
    holds("pool_gradient", |g| {
        let x = g.input("x", [8, 16, 12, 12], DType::F32);
        let pooled = nn::max_pool2d(x.sin(), nn::Pool2d::of([2, 2]));
        output(g, gradient((pooled * 0.5).square().sum_all(), &[x]).unwrap()[0].unwrap())
    });
}

#[test]
fn copies_of_weights_are_made_before_the_first_step_and_then_where_the_weights_change() {
    for (name, precision) in [("carried_cast_bf16", Precision::Bf16), ("carried_cast_tf32", Precision::Tf32)] {
        holds(name, |g| {
            let (x, w) = (g.input("x", [256, 264], DType::F32), g.input("w", [264, 272], DType::F32));
            let slope = x.t().matmul(x.matmul(w).tanh());
            let next = w - slope * 0.01;
            Program::builder(g).carry(w, next).output("y", x.matmul(next)).build().unwrap().with_precision(precision)
        });
    }
}
