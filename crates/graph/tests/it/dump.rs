//! Programs as text and as drawings, against what they should look like to the letter.

use bilevel_graph::{ConvDims, DType, DotDims, Graph, Program, WindowDims};

#[test]
fn a_program_is_written_one_operation_a_line() {
    let g = Graph::new();
    let x = g.input("x", [4, 3], DType::F32);
    let w = g.input("w", [3, 2], DType::F32);
    let y = x.matmul(w).tanh();
    let program = Program::builder(&g).output("loss", y.sum_all()).carry(w, w * 0.5).build().unwrap();
    let text = "\
%0 = input 'x' : f32[4, 3]
%1 = input 'w' : f32[3, 2]
%2 = dot[[1]·[0]] %0 %1 : f32[4, 2]
%3 = tanh %2 : f32[4, 2]
%4 = sum[0, 1] %3 : f32[]
%5 = constant(0.5) : f32[3, 2]
%6 = mul %1 %5 : f32[3, 2]
output 'loss' = %4
carry 'w' <- %6
";
    assert_eq!(program.dump(false), text);
}

#[test]
fn each_line_ends_with_the_line_of_user_code() {
    let g = Graph::new();
    let line = line!() + 1;
    let x = g.input("x", [2], DType::F64);
    let y = x.sin();
    let program = Program::builder(&g).output("y", y).build().unwrap();
    let (first, second) = (format!("{}:{line}", file!()), format!("{}:{}", file!(), line + 1));
    let text = format!("%0 = input 'x' : f64[2]  // {first}\n%1 = sin %0 : f64[2]  // {second}\noutput 'y' = %1\n");
    assert_eq!(program.to_string(), text);
}

#[test]
fn attributes_are_written_in_brackets() {
    let g = Graph::without_simplification();
    let x = g.input("x", [1, 2, 5, 6], DType::F64);
    let k = g.input("k", [4, 1, 3, 3], DType::F64);
    let i = g.input("i", [3], DType::I32);
    let dims = ConvDims {
        stride: [2, 1],
        padding: [(1, 0), (-1, 2)],
        image_dilation: [1, 1],
        kernel_dilation: [1, 2],
        groups: 2,
    };
    let window = WindowDims { size: [2, 2], stride: [2, 2], padding: [(0, 1), (0, 0)] };
    let batched = DotDims { lhs_contract: vec![3], rhs_contract: vec![3], lhs_batch: vec![0], rhs_batch: vec![0] };
    let tensors = [
        x.conv(k, dims),
        x.window_argmax(window),
        x.dot(x, batched),
        x.slice_step(3, 1, 6, 2),
        x.pad_all(vec![0, 1, 0, 0], vec![0, 0, 0, 2], vec![0, 0, 0, 1]),
        x.gather(i.check_index(1), 0),
        x.cumsum_from(3, true),
        x.max([1, 2]),
        i.convert(DType::F32),
        x.transpose([3, 2, 1, 0]),
        g.iota([3], 0, DType::I32),
    ];
    let builder = Program::builder(&g).outputs("", tensors.iter().copied());
    let text = builder.build().unwrap().dump(false);
    for part in [
        "conv[stride [2, 1], padding [(1, 0), (-1, 2)], kernel dilation [1, 2], groups 2] ",
        "window_argmax[size [2, 2], stride [2, 2], padding [(0, 1), (0, 0)]] ",
        "dot[[3]·[3], batch [0]·[0]] ",
        "slice[0..1, 0..2, 0..5, 1..6:2] ",
        "pad[0+0, 1+0, 0+0, 0+2:1] ",
        "check_index[0..1] ",
        "gather[batch 0] ",
        "cumsum[3, from the end] ",
        "max[1, 2] ",
        "convert[f32] ",
        "transpose[3, 2, 1, 0] ",
        "iota[0] :",
    ] {
        assert!(text.contains(part), "{part} is not in\n{text}");
    }
}

#[test]
fn a_drawing_has_a_box_for_each_operation_and_an_arrow_for_each_operand() {
    let g = Graph::new();
    let x = g.input("the \"x\"", [2], DType::F64);
    let program = Program::builder(&g).output("y", x.exp()).carry(x, x.exp()).build().unwrap();
    let text = r#"digraph program {
  node [shape=box, fontname="monospace"];
  n0 [label="%0 input 'the \"x\"'\nf64[2]", style=filled];
  n1 [label="%1 exp\nf64[2]"];
  n0 -> n1;
  o0 [label="y", shape=ellipse];
  n1 -> o0;
  n1 -> n0 [style=dashed, constraint=false];
}
"#;
    assert_eq!(program.to_dot(), text);
}
