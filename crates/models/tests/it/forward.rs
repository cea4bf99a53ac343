//! Forward passes against the same formulas written out another way.

use crate::common::{evaluate, noise, numbers};
use bilevel::Variable;
use bilevel_graph::{Array, DType, Graph, Tensor, Tree, nn};
use bilevel_models::nerf::{Field, Nerf, depths, see};
use bilevel_models::{
    AlexNetConfig, Conv, Conv4Config, FourierMlpConfig, MlpConfig, NerfConfig, Padding, SirenConfig, Statistics,
    VitConfig, WideResNetConfig, for_tasks, init, inputs,
};

#[track_caller]
fn assert_close(found: &Array, expected: &[f64]) {
    let found = found.to_f64();
    assert_eq!(found.len(), expected.len());
    let scale = expected.iter().fold(1e-300, |m: f64, v| m.max(v.abs()));
    for (a, b) in found.iter().zip(expected) {
        assert!((a - b).abs() <= 1e-12 * scale, "{a} but expected {b}");
    }
}

/// x·w + b for rows of x.
fn affine(x: &[Vec<f64>], w: &Array, b: Option<&Array>) -> Vec<Vec<f64>> {
    let (w, outputs) = (w.to_f64(), w.shape()[1]);
    let b = b.map_or(vec![0.0; outputs], Array::to_f64);
    let one =
        |row: &Vec<f64>, o: usize| b[o] + row.iter().enumerate().map(|(i, v)| v * w[i * outputs + o]).sum::<f64>();
    x.iter().map(|row| (0..outputs).map(|o| one(row, o)).collect()).collect()
}

fn layer_norm(x: &[Vec<f64>], gain: &Array, bias: &Array) -> Vec<Vec<f64>> {
    let (gain, bias) = (gain.to_f64(), bias.to_f64());
    let one = |row: &Vec<f64>| {
        let mean = row.iter().sum::<f64>() / row.len() as f64;
        let variance = row.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / row.len() as f64;
        let scale = 1.0 / (variance + 1e-6).sqrt();
        row.iter().enumerate().map(|(i, v)| (v - mean) * scale * gain[i] + bias[i]).collect()
    };
    x.iter().map(one).collect()
}

fn added(x: &[Vec<f64>], y: &[Vec<f64>]) -> Vec<Vec<f64>> {
    x.iter().zip(y).map(|(x, y)| x.iter().zip(y).map(|(x, y)| x + y).collect()).collect()
}

/// x·Φ(x), with Φ by Simpson's rule from 0.
fn gelu(x: f64) -> f64 {
    let (steps, density) = (4000, |t: f64| (-t * t / 2.0).exp() / std::f64::consts::TAU.sqrt());
    let h = x / f64::from(steps);
    let term = |i: i32| {
        density(f64::from(i) * h)
            * if i == 0 || i == steps {
                1.0
            } else if i % 2 == 1 {
                4.0
            } else {
                2.0
            }
    };
    x * (0.5 + (0..=steps).map(term).sum::<f64>() * h / 3.0)
}

#[test]
fn a_vision_transformer_is_its_formula_written_in_loops() {
    transformer_is_its_formula([2, 3]);
}

#[test]
fn tokens_that_are_added_to_make_a_multiple_of_eight_change_nothing() {
    transformer_is_its_formula([2, 31]);
}

/// On images of so many rows and columns of patches.
fn transformer_is_its_formula([rows, columns]: [usize; 2]) {
    let (image, tokens) = ([2 * rows, 2 * columns], 1 + rows * columns);
    let config = VitConfig { image, channels: 2, width: 6, heads: 3, hidden: 5, depth: 2, ..VitConfig::small(2, 3) };
    let model = config.build().unwrap();
    let (values, images) = (numbers(&model), noise(&[2, 2, image[0], image[1]], 50));
    let found = evaluate(&model, &values, &images, |m, data| m.forward(data));
    let pixels = images.to_f64();
    let mut expected = vec![];
    for n in 0..2 {
        let mut patches = vec![];
        for (row, column) in (0..rows).flat_map(|r| (0..columns).map(move |c| (r, c))) {
            let place =
                |c: usize, y: usize, x: usize| ((n * 2 + c) * image[0] + 2 * row + y) * image[1] + 2 * column + x;
            let offsets = (0..8).map(|i| (i / 4, i / 2 % 2, i % 2));
            patches.push(offsets.map(|(c, y, x)| pixels[place(c, y, x)]).collect::<Vec<f64>>());
        }
        let kernel = values.patch_embed.proj.weight.to_f64();
        let turned = (0..48).map(|i| kernel[i % 6 * 8 + i / 6]).collect();
        let kernel = Array::from_f64([8, 6], turned).unwrap();
        let mut x = vec![values.cls_token.to_f64()];
        x.extend(affine(&patches, &kernel, Some(&values.patch_embed.proj.bias)));
        let positions = values.pos_embed.to_f64();
        x = added(&x, &positions.chunks(6).map(<[f64]>::to_vec).collect::<Vec<_>>());
        for block in &values.blocks {
            let normed = layer_norm(&x, &block.norm1.weight, &block.norm1.bias);
            let qkv = affine(&normed, &block.attn.qkv.weight, block.attn.qkv.bias.as_ref());
            let mut mixed = vec![vec![0.0; 6]; tokens];
            for (head, to) in (0..3).flat_map(|h| (0..tokens).map(move |t| (h, t))) {
                let at = |token: usize, which: usize, i: usize| qkv[token][which * 6 + head * 2 + i];
                let score = |s: usize| (0..2).map(|i| at(to, 0, i) * at(s, 1, i)).sum::<f64>() / 2f64.sqrt();
                let weights: Vec<f64> = (0..tokens).map(|s| score(s).exp()).collect();
                let sum: f64 = weights.iter().sum();
                for i in 0..2 {
                    mixed[to][head * 2 + i] = (0..tokens).map(|s| weights[s] / sum * at(s, 2, i)).sum();
                }
            }
            x = added(&x, &affine(&mixed, &block.attn.proj.weight, block.attn.proj.bias.as_ref()));
            let normed = layer_norm(&x, &block.norm2.weight, &block.norm2.bias);
            let mut hidden = affine(&normed, &block.mlp.fc1.weight, block.mlp.fc1.bias.as_ref());
            hidden.iter_mut().flatten().for_each(|v| *v = gelu(*v));
            x = added(&x, &affine(&hidden, &block.mlp.fc2.weight, block.mlp.fc2.bias.as_ref()));
        }
        let class = layer_norm(&x[..1], &values.norm.weight, &values.norm.bias);
        expected.extend(affine(&class, &values.head.weight, values.head.bias.as_ref()).concat());
    }
    assert_close(&found, &expected);
}

#[test]
fn same_padding_puts_the_odd_zero_after_as_tensorflow_does() {
    // A kernel whose only weight is its first place shows what lies under it.
    let first = |side: usize| {
        let mut values = vec![0.0; side * side];
        values[0] = 1.0;
        Array::from_f64([1, 1, side, side], values).unwrap()
    };
    let image = Array::from_f64([1, 1, 4, 4], (1..=16).map(f64::from).collect()).unwrap();
    let under = |side: usize, stride: usize| {
        let conv = Conv { stride, ..Conv::new(init::zeros([1, 1, side, side]), Padding::Same) };
        let values = conv.map(|_| first(side));
        evaluate(&conv, &values, &image, |m, data| m.forward(data)).to_f64()
    };
    // Stride 2 on 4 places with a kernel of 3: one zero, after. With 5: one before, two after.
    assert_eq!(under(3, 2), [1.0, 3.0, 9.0, 11.0]);
    assert_eq!(under(5, 2), [0.0, 0.0, 0.0, 6.0]);
    // At stride 1 there is one on each side.
    assert_eq!(under(3, 1)[..6], [0.0, 0.0, 0.0, 0.0, 0.0, 1.0]);
}

/// A convolution at stride 1 or more with as many zeros as PyTorch would be told.
fn conv(x: Tensor, w: Tensor, b: Option<Tensor>, stride: usize, padding: usize) -> Tensor {
    nn::conv2d(x, w, b, nn::Conv2d { stride: [stride; 2], padding: [padding; 2], ..nn::Conv2d::default() })
}

#[test]
fn the_convolutional_networks_are_their_formulas_written_flat() {
    let pool = |x| nn::max_pool2d(x, nn::Pool2d::of([2, 2]));
    let images = noise(&[2, 3, 32, 32], 50);

    let alexnet = AlexNetConfig::for_32x32(4).build().unwrap();
    let values = numbers(&alexnet);
    let found = evaluate(&alexnet, &values, &images, |m, data| m.forward(data));
    let flat = evaluate(&alexnet, &values, &images, |m, data| {
        let layer = |x, i: usize, stride, padding| {
            nn::relu(conv(x, m.features[i].conv.weight, m.features[i].conv.bias, stride, padding))
        };
        let x = pool(layer(pool(layer(data, 0, 4, 5)), 1, 1, 2));
        let x = pool(layer(layer(layer(x, 2, 1, 1), 3, 1, 1), 4, 1, 1));
        let last = &m.classifier.layers[0];
        x.reshape([2, 256]).matmul(last.weight) + last.bias.unwrap()
    });
    assert_close(&found, &flat.to_f64());

    let conv4 = Conv4Config { image: [32, 32], width: 4, ..Conv4Config::default() }.build().unwrap();
    let values = numbers(&conv4);
    let found = evaluate(&conv4, &values, &images, |m, data| m.forward(data, Statistics::Batch));
    let flat = evaluate(&conv4, &values, &images, |m, data| {
        let mut x = data;
        for layer in &m.layers {
            let norm = layer.norm.as_ref().unwrap();
            x = pool(nn::relu(nn::batch_norm(conv(x, layer.conv.weight, None, 1, 1), norm.weight, norm.bias, 1e-5).y));
        }
        x.reshape([2, 16]).matmul(m.head.weight) + m.head.bias.unwrap()
    });
    assert_close(&found, &flat.to_f64());

    let wide = WideResNetConfig { running_statistics: false, ..WideResNetConfig::new(16, 2, 4) }.build().unwrap();
    let images = noise(&[2, 3, 8, 8], 50);
    let values = numbers(&wide);
    let found = evaluate(&wide, &values, &images, |m, data| m.forward(data, Statistics::Batch));
    let flat = evaluate(&wide, &values, &images, |m, data| {
        let norm = |x, n: &bilevel_models::BatchNorm<Tensor>| nn::relu(nn::batch_norm(x, n.weight, n.bias, 1e-5).y);
        let mut x = conv(data, m.stem.weight, None, 1, 1);
        for (number, b) in m.blocks.iter().enumerate() {
            // Two blocks per group; the second and the third group begin with a stride of 2, every group with a shortcut.
            let (first, stride) = (number % 2 == 0, if number == 2 || number == 4 { 2 } else { 1 });
            assert_eq!(b.shortcut.is_some(), first);
            let h = norm(x, &b.norm1);
            let skip = b.shortcut.as_ref().map_or(x, |s| conv(h, s.weight, None, stride, 0));
            let h = norm(conv(h, b.conv1.weight, None, stride, 1), &b.norm2);
            x = skip + conv(h, b.conv2.weight, None, 1, 1);
        }
        norm(x, &m.norm).mean([2, 3]).matmul(m.head.weight) + m.head.bias.unwrap()
    });
    assert_close(&found, &flat.to_f64());
}

#[test]
fn implicit_representations_are_their_formulas_written_in_loops() {
    let points = noise(&[3, 2], 50);
    let rows: Vec<Vec<f64>> = points.to_f64().chunks(2).map(<[f64]>::to_vec).collect();

    let config = SirenConfig { width: 4, layers: 2, first_frequency: 6.0, frequency: 3.0, ..SirenConfig::default() };
    let siren = config.build().unwrap();
    let values = numbers(&siren);
    let found = evaluate(&siren, &values, &points, |m, data| m.forward(data));
    let mut x = rows.clone();
    for (layer, frequency) in values.layers.iter().zip([6.0, 3.0]) {
        x = affine(&x, &layer.weight, layer.bias.as_ref());
        x.iter_mut().flatten().for_each(|v| *v = (frequency * *v).sin());
    }
    assert_close(&found, &affine(&x, &values.head.weight, values.head.bias.as_ref()).concat());

    let config = FourierMlpConfig { features: 3, hidden: vec![4], deviation: 0.5, ..FourierMlpConfig::default() };
    let fourier = config.build().unwrap();
    let values = numbers(&fourier);
    let found = evaluate(&fourier, &values, &points, |m, data| m.forward(data));
    let angles = affine(&rows, &values.frequencies, None);
    let wave = |angle: &f64, f: fn(f64) -> f64| f(std::f64::consts::TAU * angle);
    let waves =
        |row: &Vec<f64>| row.iter().map(|a| wave(a, f64::sin)).chain(row.iter().map(|a| wave(a, f64::cos))).collect();
    let [first, last] = [0, 1].map(|i| &values.mlp.layers[i]);
    let mut hidden = affine(&angles.iter().map(waves).collect::<Vec<_>>(), &first.weight, first.bias.as_ref());
    hidden.iter_mut().flatten().for_each(|v| *v = v.max(0.0));
    assert_close(&found, &affine(&hidden, &last.weight, last.bias.as_ref()).concat());
}

#[test]
fn a_nerf_encodes_positions_at_equal_ratios_of_frequency() {
    let nerf = NerfConfig { bands: 3, highest: 4.0, layers: 1, width: 5 }.build().unwrap();
    let (values, points) = (numbers(&nerf), noise(&[2, 3], 50));
    let density = evaluate(&nerf, &values, &points, |m, data| m.field(data).density);
    let colour = evaluate(&nerf, &values, &points, |m, data| m.field(data).colour);
    let encode = |x: &[f64]| {
        let angles = [1.0, 4.0, 16.0].into_iter().flat_map(|f| x.iter().map(move |v| f * v)).collect::<Vec<_>>();
        angles.iter().map(|a| a.sin()).chain(angles.iter().map(|a| a.cos())).collect::<Vec<_>>()
    };
    let rows: Vec<Vec<f64>> = points.to_f64().chunks(3).map(encode).collect();
    let [first, last] = [0, 1].map(|i| &values.mlp.layers[i]);
    let mut hidden = affine(&rows, &first.weight, first.bias.as_ref());
    hidden.iter_mut().flatten().for_each(|v| *v = v.max(0.0));
    let out = affine(&hidden, &last.weight, last.bias.as_ref());
    assert_close(&density, &out.iter().map(|o| o[3].exp().ln_1p()).collect::<Vec<_>>());
    let sigmoid = |v: &f64| 1.0 / (1.0 + (-v).exp());
    assert_close(&colour, &out.iter().flat_map(|o| o[..3].iter().map(sigmoid).collect::<Vec<_>>()).collect::<Vec<_>>());
}

#[test]
fn rays_see_what_is_before_the_rest_and_white_behind_it() {
    let (density, colour) = ([0.7, 0.0, 2.5], [[0.1, 0.2, 0.3], [0.9, 0.9, 0.9], [0.5, 0.4, 0.3]]);
    let depths = [1.0, 1.5, 3.0];
    let g = Graph::new();
    let inputs = [("density", vec![1, 3]), ("colour", vec![1, 3, 3]), ("depths", vec![1, 3])]
        .map(|(name, shape)| g.input(name, shape, DType::F64));
    let seen = see(Field { density: inputs[0], colour: inputs[1] }, inputs[2]);
    let arrays = [
        Array::from_f64([1, 3], density.to_vec()).unwrap(),
        Array::from_f64([1, 3, 3], colour.concat()).unwrap(),
        Array::from_f64([1, 3], depths.to_vec()).unwrap(),
    ];
    let point: Vec<(Tensor, Array)> = inputs.into_iter().zip(arrays).collect();
    let found = bilevel_graph::Reference::evaluate(&g, &point, &[seen.colour, seen.depth, seen.opacity]).unwrap();
    let (mut light, mut expected, mut depth) = (1.0, [0.0; 3], 0.0);
    for (i, apart) in [0.5, 1.5, 1e-3].into_iter().enumerate() {
        let alpha = 1.0 - (-density[i] * apart).exp();
        (0..3).for_each(|c| expected[c] += light * alpha * colour[i][c]);
        depth += light * alpha * depths[i];
        light *= 1.0 - alpha;
    }
    assert_close(&found[0], &expected.map(|c| c + light));
    assert_close(&found[1], &[depth]);
    assert_close(&found[2], &[1.0 - light]);
}

#[test]
fn a_batch_that_does_not_fit_is_an_error_at_the_line_of_the_call() {
    let g = Graph::new();
    let config = VitConfig { image: [4, 4], width: 4, heads: 2, hidden: 4, depth: 1, ..VitConfig::small(2, 3) };
    let vit = inputs(&config.build().unwrap(), &g, DType::F32);
    let line = line!() + 1;
    let error = vit.forward(g.input("images", [2, 3, 5, 4], DType::F32)).check().unwrap_err().to_string();
    assert!(error.contains(&format!("forward.rs:{line}")), "{error}");
    let conv4 = Conv4Config { image: [16, 16], width: 4, ..Conv4Config::default() }.build().unwrap();
    let conv4 = inputs(&conv4, &g, DType::F64);
    let line = line!() + 1;
    let logits = conv4.forward(g.input("small", [2, 3, 8, 8], DType::F64), Statistics::Batch);
    let error = logits.check().unwrap_err().to_string();
    assert!(error.contains(&format!("forward.rs:{line}")), "{error}");
}

#[test]
fn tasks_side_by_side_answer_as_each_of_them_alone() {
    let one = Conv4Config { image: [17, 22], width: 3, channels: 2, classes: 4, normalised: true }.build().unwrap();
    let tasks = for_tasks(&one, 3);
    let mut number = 40;
    let values = tasks.map(|leaf| {
        number += 1;
        noise(leaf.shape(), number)
    });
    let images = noise(&[3, 5, 2, 17, 22], 7);
    let found = evaluate(&tasks, &values, &images, |m, data| m.forward_tasks(data));
    assert_eq!(found.shape(), [3, 5, 4]);
    let of_task = |all: &Array, task: usize| {
        let (shape, numbers) = (&all.shape()[1..], all.to_f64());
        let size = numbers.len() / 3;
        Array::from_f64(shape, numbers[task * size..(task + 1) * size].to_vec()).unwrap()
    };
    let alone = |task: usize| {
        let own = values.map(|leaf| of_task(leaf, task));
        evaluate(&one, &own, &of_task(&images, task), |m, data| m.forward(data, Statistics::Batch)).to_f64()
    };
    assert_close(&found, &(0..3).flat_map(alone).collect::<Vec<f64>>());
}

#[test]
fn signals_side_by_side_are_represented_as_by_each_network_alone() {
    fn both<S: Tree<Leaf = Variable>>(
        one: &S,
        data: &Array,
        side_by_side: impl Fn(&<S::With<Variable> as Tree>::With<Tensor>, Tensor) -> Tensor,
        alone: impl Fn(&S::With<Tensor>, Tensor) -> Tensor,
    ) {
        let (tasks, count) = (for_tasks(one, 2), std::cell::Cell::new(60));
        let values = tasks.map(|leaf| {
            count.set(count.get() + 1);
            noise(leaf.shape(), count.get())
        });
        let half = |all: &Array, task: usize| {
            let (shape, numbers) = (&all.shape()[1..], all.to_f64());
            let size = numbers.len() / 2;
            Array::from_f64(shape, numbers[task * size..(task + 1) * size].to_vec()).unwrap()
        };
        let found = evaluate(&tasks, &values, data, side_by_side);
        let each = |task: usize| {
            let leaves = values.leaves().into_iter().map(|leaf| half(leaf, task));
            evaluate(one, &one.rebuild(leaves).unwrap(), &half(data, task), &alone).to_f64()
        };
        assert_close(&found, &(0..2).flat_map(each).collect::<Vec<f64>>());
    }
    let siren = SirenConfig { width: 5, layers: 3, frequency: 2.0, ..SirenConfig::default() }.build().unwrap();
    both(&siren, &noise(&[2, 7, 2], 1), |nets, x| nets.forward_tasks(x), |net, x| net.forward(x));
    let mlp = MlpConfig::relu([3, 5, 4, 2]).build().unwrap();
    both(&mlp, &noise(&[2, 7, 3], 2), |nets, x| nets.forward_tasks(x), |net, x| net.forward(x));
    let nerf = NerfConfig { bands: 2, highest: 1.5, layers: 2, width: 6 }.build().unwrap();
    let rays = |nets: &Nerf<Tensor>, x: Tensor| {
        nets.render_tasks(2, x.reshape([6, 3]), x.reshape([6, 3]), depths(x.reshape([6, 3]), 1.0, 2.0, 4, None))
            .colour
            .reshape([2, 3, 3])
    };
    both(&nerf, &noise(&[2, 3, 3], 3), rays, |net, x| net.render(x, x, depths(x, 1.0, 2.0, 4, None)).colour);
}

#[test]
fn a_convolution_of_tasks_has_the_strides_padding_and_bias_of_one_alone() {
    for (padding, stride) in [(Padding::Each(0), 1), (Padding::Each(2), 2), (Padding::Same, 2), (Padding::Same, 3)] {
        let kernel = |tasks: &[usize]| Conv {
            bias: Some(init::zeros([tasks, &[4]].concat())),
            stride,
            ..Conv::new(init::zeros([tasks, &[4, 3, 3, 2]].concat()), padding)
        };
        let (one, tasks) = (kernel(&[]), kernel(&[1]));
        let images = noise(&[2, 3, 8, 9], 3);
        let as_task = Array::from_f64([1, 2, 3, 8, 9], images.to_f64()).unwrap();
        let values = numbers(&one);
        let own = values.map(|leaf| Array::from_f64([&[1], leaf.shape()].concat(), leaf.to_f64()).unwrap());
        let swap = [0, 2, 1, 3, 4];
        let found = evaluate(&tasks, &own, &as_task, |m, x| m.forward_tasks(x.transpose(swap)).transpose(swap));
        assert_close(&found, &evaluate(&one, &values, &images, |m, x| m.forward(x)).to_f64());
    }
}
