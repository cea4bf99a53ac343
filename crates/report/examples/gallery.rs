//! Everything a report can hold, on one page of made-up data: `cargo run --example gallery -- OUT.html`

use bilevel_report::{Axis, Column, Curve, Panel, Pictures, Plot, Report, Section, Table};
use std::process::ExitCode;

#[allow(dead_code)] // a test uses only the sample
fn main() -> ExitCode {
    let Some(path) = std::env::args().nth(1) else {
        eprintln!("give the path of the page: cargo run --release -p bilevel-report --example gallery -- OUT.html");
        return ExitCode::FAILURE;
    };
    match std::fs::write(&path, sample().html()) {
        Ok(()) => {
            println!("wrote {path}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("{path} cannot be written: {error}");
            ExitCode::FAILURE
        }
    }
}

/// The page.
pub fn sample() -> Report {
    let intro = "Every number here is made up. The page shows the parts of a report: curves with their uncertainty, \
        heat maps, tables, warnings and text.\n\nPoint at a plot to read values; choose a name in a legend to \
                 hide its curve. Everything is in this one file, so `report.html` can be sent to a colleague directly.";
    Report {
        title: "Learning a penalty for every weight".into(),
        subtitle: "Digits, 8 × 8 pixels · 5 seeds · 400 outer iterations · made-up data".into(),
        sections: vec![
            Section::Text { title: String::new(), text: intro.into() },
            Section::Warnings(vec![
                "Seed 3 met a loss that was not finite at iteration 212 and continued with half the step size.".into(),
                "`λ.bias` cannot influence the trained parameters: its mixed product is structurally zero.".into(),
            ]),
            Section::Plot(losses()),
            Section::Plot(distances()),
            Section::Pictures(penalties()),
            Section::Table(table()),
            Section::Plot(costs()),
            Section::Pictures(corrections()),
            Section::Table(comparison()),
            Section::Code { title: "Configuration".into(), text: CONFIGURATION.into() },
        ],
        footer: "made by bilevel 0.1.0 on 2026-01-31T12:00:00Z".into(),
    }
}

/// As wide as comparisons of methods come.
fn comparison() -> Table {
    let names = ["outer loss", "validation loss", "test loss", "test accuracy", "gradients", "seconds"];
    let row = |method: &str| {
        let cells = ["0.3809 ± 0.0093", "0.3809 ± 0.0093", "0.398 ± 0.014", "0.9357 ± 0.0083", "1,600", "0.16"];
        std::iter::once(method).chain(cells).map(String::from).collect()
    };
    Table {
        columns: std::iter::once(Column::text("method")).chain(names.map(Column::numeric)).collect(),
        rows: ["hpo-sgld", "langevin-adjoint", "amigo-cg"].map(row).to_vec(),
        caption: "Methods side by side, mean ± sd of 2 seeds".into(),
    }
}

const CONFIGURATION: &str = "[problem]
task = \"digits\"            # 64-256-10 with tanh, trained on 512 examples
train = 512
validation = 512

[estimator]
name = \"langevin-adjoint\"
steps = 100
temperature = 1e-6

[outer]
optimizer = \"adam\"
rate = { start = 0.05, end = 0.005, schedule = \"cosine\" }
iterations = 400            # a line that is too long for a small screen scrolls in its own box, not with the page";

/// A number between 0 and 1 that looks random.
fn noise(i: usize, seed: usize) -> f64 {
    let hash =
        (i as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ (seed as u64 + 7).wrapping_mul(0xd1b5_4a32_d192_ed03);
    let hash = (hash ^ (hash >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    ((hash ^ (hash >> 32)) >> 11) as f64 / (1u64 << 53) as f64
}

fn losses() -> Plot {
    let curve = |name: &str, seed: usize, last: f64, rate: f64| {
        let smooth = |i: usize| last + (2.3 - last) * (-rate * i as f64).exp();
        let width = |i: usize| 0.05 + 0.18 * (-0.01 * i as f64).exp();
        Curve::new(name, (0..=400).map(|i| (i as f64, smooth(i) + 0.02 * (noise(i, seed) - 0.5))))
            .with_band((0..=400).map(|i| (smooth(i) - width(i), smooth(i) + width(i))))
    };
    Plot {
        title: "Validation loss falls fastest with the adjoint".into(),
        x: Axis::linear("outer iteration"),
        y: Axis::linear("validation loss, mean and range of 5 seeds"),
        curves: vec![
            curve("Langevin adjoint", 1, 0.31, 0.022),
            curve("implicit, conjugate gradients", 2, 0.42, 0.014),
            curve("reverse mode, 20 steps", 3, 0.64, 0.018),
            Curve::new("no penalty", [(0.0, 1.12), (400.0, 1.12)]).dashed(),
        ],
    }
}

fn distances() -> Plot {
    let curve = |name: &str, seed: usize, floor: f64, rate: f64| {
        let value = |i: usize| {
            (floor + (-rate * i as f64).exp())
                * (0.9 + 0.2 * noise(i, seed) + 0.3 * (i as f64 * 0.013 + seed as f64).sin())
        };
        Curve::new(name, (0..4000).map(|i| (i as f64, value(i))))
    };
    Plot {
        title: "Distance of λ to its optimum".into(),
        x: Axis::linear("outer iteration"),
        y: Axis::logarithmic("|λ − λ*|"),
        curves: vec![
            curve("Langevin adjoint", 4, 3e-6, 0.004),
            curve("HPO-SGLD as printed", 5, 1.2e-2, 0.005),
            curve("Neumann series, 10 terms", 6, 4e-4, 0.003),
        ],
    }
}

fn costs() -> Plot {
    let sizes = [100.0, 300.0, 1e3, 3e3, 1e4, 3e4, 1e5, 3e5, 1e6];
    let curve =
        |name: &str, fixed: f64, each: f64| Curve::new(name, sizes.map(|n| (n, fixed + each * n))).with_markers();
    Plot {
        title: "Cost of one hypergradient".into(),
        x: Axis::logarithmic("parameters"),
        y: Axis::logarithmic("milliseconds"),
        curves: vec![
            curve("Langevin adjoint", 0.02, 2e-5),
            curve("conjugate gradients", 0.08, 9e-5),
            curve("forward mode", 0.01, 4e-3),
        ],
    }
}

fn penalties() -> Pictures {
    let panel = |digit: usize| {
        // A ring for each digit, somewhere else and of another size.
        let (cx, cy) = (3.5 + (digit as f64 * 2.1).sin(), 3.5 + (digit as f64 * 1.3).cos());
        let value = |i: usize| {
            let (x, y) = ((i % 8) as f64 - cx, (i / 8) as f64 - cy);
            let ring = (x.hypot(y) - 1.2 - 0.17 * digit as f64).abs();
            6.0 * (1.0 - (-0.35 * ring * ring).exp()) + 0.6 * noise(i, digit)
        };
        Panel { title: format!("digit {digit}"), rows: 8, columns: 8, values: (0..64).map(value).collect() }
    };
    Pictures { title: "Learned penalty of each pixel, by class".into(), panels: (0..10).map(panel).collect() }
}

fn corrections() -> Pictures {
    let panel = |name: &str, seed: usize| {
        let value = |i: usize| ((i % 16) as f64 * 0.4 + seed as f64).sin() * ((i / 16) as f64 * 0.5).cos() * 0.01;
        let mut values: Vec<f64> = (0..160).map(value).collect();
        values[21] = f64::NAN; // a value that is missing
        Panel { title: name.into(), rows: 10, columns: 16, values }
    };
    let panels = vec![panel("first layer", 0), panel("second layer", 1), panel("last layer", 2)];
    Pictures { title: "Hypergradient, signed".into(), panels }
}

fn table() -> Table {
    let row = |cells: [&str; 6]| cells.map(String::from).to_vec();
    Table {
        columns: vec![
            Column::text("estimator"),
            Column::numeric("test accuracy"),
            Column::numeric("range of 5 seeds"),
            Column::numeric("gradients"),
            Column::numeric("seconds"),
            Column::text("verdict"),
        ],
        rows: vec![
            row(["Langevin adjoint", "97.1 %", "96.8 – 97.4", "41,200", "12.4", "as expected"]),
            row(["implicit, conjugate gradients", "96.4 %", "95.9 – 96.8", "64,000", "19.8", "as expected"]),
            row(["reverse mode, 20 steps", "95.2 %", "94.1 – 95.9", "80,400", "24.1", "within noise"]),
            row(["no penalty", "93.8 %", "93.5 – 94.2", "400", "0.2", "—"]),
        ],
        caption: "Accuracy on 797 held-out digits".into(),
    }
}
