//! Precision as a rewrite of a finished program: which operations it changes, and what they then compute.

use bilevel_graph::conformance::outputs;
use bilevel_graph::{
    Array, ConvDims, DType, DotDims, Graph, Op, Precision, Program, Reference, Result, gradient_or_zeros,
    hessian_vector,
};

/// A loss of products and convolutions with its gradient and a Hessian product.
fn differentiated(dtype: DType) -> Program {
    let g = Graph::new();
    let (x, w) = (g.input("x", [2, 3, 5, 4], dtype), g.input("w", [2, 3, 2, 2], dtype));
    let dims = ConvDims { padding: [(1, 0), (0, 1)], ..Default::default() };
    let pixels = x.conv(w, dims).tanh().reshape([2, 40]);
    let loss = pixels.matmul(pixels.t()).sin().sum_all();
    let slope = gradient_or_zeros(loss, &[w]).unwrap()[0];
    let product = hessian_vector(loss, &[w], &[w.cos()]).unwrap()[0].unwrap();
    Program::builder(&g).output("slope", slope).output("product", product).carry(w, w - slope * 0.1).build().unwrap()
}

fn precisions(program: &Program) -> Vec<Precision> {
    let of = |op: &Op| match op {
        Op::Dot(_, precision) | Op::Conv(_, _, precision) => Some(*precision),
        _ => None,
    };
    program.nodes.iter().filter_map(|node| of(&node.op)).collect()
}

#[test]
fn every_product_of_a_differentiated_program_is_rewritten_and_nothing_else() {
    let full = differentiated(DType::F32);
    let count = precisions(&full).len();
    assert!(count > 8, "{count} products");
    for precision in Precision::ALL {
        let rewritten = full.clone().with_precision(precision);
        rewritten.validate().unwrap();
        assert_eq!(precisions(&rewritten), vec![precision; count]);
        let back = rewritten.with_precision(Precision::Full);
        assert_eq!(back.dump(true), full.dump(true));
    }
}

#[test]
fn products_of_64_bit_floats_stay_as_they_are_and_one_that_rounds_is_refused() {
    let mut program = differentiated(DType::F64).with_precision(Precision::Bf16);
    assert!(precisions(&program).iter().all(|&precision| precision == Precision::Full));
    let product = program.nodes.iter_mut().find_map(|node| match &mut node.op {
        Op::Dot(_, precision) => Some(precision),
        _ => None,
    });
    *product.unwrap() = Precision::Tf32;
    let error = program.validate().unwrap_err().to_string();
    assert!(error.contains("only operands of type f32 can be rounded to tf32, not f64"), "{error}");
}

#[test]
fn a_program_that_is_written_out_names_its_precision() {
    let program = differentiated(DType::F32);
    let dump = program.clone().with_precision(Precision::Bf16).dump(false);
    assert!(dump.contains("dot[[1]·[1], bf16]"), "{dump}");
    assert!(dump.contains("conv[stride [1, 1], padding [(1, 0), (0, 1)], bf16]"), "{dump}");
    assert!(!program.dump(false).contains("full"), "{}", program.dump(false));
}

/// 3·2⁻⁹ lies between two numbers of 8 digits near 1 (their distance is 2⁻⁷), nearer to the upper one; 2⁻¹² goes away.
#[test]
fn a_product_multiplies_rounded_operands_and_in_bf16_rounds_its_sum() -> Result<()> {
    let g = Graph::new();
    let (a, b) = (g.input("a", [1, 2], DType::F32), g.input("b", [2, 1], DType::F32));
    let program = Program::builder(&g).output("y", a.matmul(b)).build()?;
    let inputs = vec![
        ("a".to_string(), Array::from_f32([1, 2], vec![1.0 + 3.0 / 512.0, 1.0 / 256.0])?),
        ("b".to_string(), Array::from_f32([2, 1], vec![1.0 + 1.0 / 4096.0, 1.0])?),
    ];
    let found =
        |precision| Ok(outputs(&Reference, &program.clone().with_precision(precision), &inputs, 1)?[0].to_f64()[0]);
    let exact = (1.0 + 3.0 / 512.0) * (1.0 + 1.0 / 4096.0) + 1.0 / 256.0;
    assert_eq!(found(Precision::Full)?, f64::from(exact as f32));
    assert_eq!(found(Precision::Tf32)?, 1.0 + 3.0 / 512.0 + 1.0 / 256.0);
    // The sum, 1 + 2⁻⁷ + 2⁻⁸, has a digit more than the operands and goes to the even one of two.
    assert_eq!(found(Precision::Bf16)?, 1.0 + 2.0 / 128.0);
    Ok(())
}

#[test]
fn a_convolution_multiplies_rounded_operands() -> Result<()> {
    let g = Graph::new();
    let (image, kernel) = (g.input("image", [1, 1, 1, 2], DType::F32), g.input("kernel", [1, 1, 1, 2], DType::F32));
    let plain = ConvDims::default();
    let program = Program::builder(&g).output("y", image.conv(kernel, plain)).build()?;
    let inputs = vec![
        ("image".to_string(), Array::from_f32([1, 1, 1, 2], vec![257.0, 3.0])?),
        ("kernel".to_string(), Array::from_f32([1, 1, 1, 2], vec![1.0, 2.0])?),
    ];
    // 257 has nine digits; of 256 and 258, equally near, 256 is the even one. 262 has eight.
    for (precision, expected) in [(Precision::Full, 263.0), (Precision::Tf32, 263.0), (Precision::Bf16, 262.0)] {
        assert_eq!(
            outputs(&Reference, &program.clone().with_precision(precision), &inputs, 1)?[0].to_f64(),
            [expected]
        );
    }
    Ok(())
}

#[test]
fn two_products_that_differ_in_precision_alone_differ() {
    let dims = DotDims { lhs_contract: vec![1], rhs_contract: vec![0], ..DotDims::default() };
    let [full, bf16] = [Precision::Full, Precision::Bf16].map(|precision| Op::Dot(dims.clone(), precision));
    assert_ne!(full, bf16);
}
