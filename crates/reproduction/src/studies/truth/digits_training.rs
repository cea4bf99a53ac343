//! The existence of a hypergradient: one whole training of an MLP on 200 digits with minibatches of 8 and one L2 weight
//! per parameter. It shows the exact derivative through all steps, the growth of sensitivities, and the result of one
//! forward pass of the Langevin adjoint.

use super::NAME;
use bilevel::graph::nn;
use bilevel::methods::{HpoSgld, LangevinAdjoint, Rmd, Storage};
use bilevel::{Array, DType, Hypergradient, InnerLoop, Key, Method, Problem, Result, Session, Tensor, Tree, Variable};
use bilevel_report::Column;
use bilevel_run::{Finished, Measure, Place, Row, Verdict, label};
use bilevel_tasks::digits::{CLASSES, Digits, PIXELS};
use serde::{Deserialize, Serialize};

/// Inner steps; at the last one, derivatives of training do not exist.
pub(super) const STEPS: [f64; 4] = [0.1, 0.3, 0.6, 1.0];
const HIDDEN: usize = 32;
const ROWS: usize = 200;
const BATCH: usize = 8;
const PENALTY: f64 = 1e-3;
/// Steps after which the adjoint decays, in its column.
const HORIZON: usize = 1000;

#[derive(Clone, Tree)]
struct Net<T> {
    first: T,
    first_bias: T,
    second: T,
    second_bias: T,
}

fn forward(x: Tensor, net: &Net<Tensor>) -> Tensor {
    nn::linear(nn::linear(x, net.first, net.first_bias).tanh(), net.second, net.second_bias)
}

/// A training.
#[derive(Serialize)]
pub(super) struct DigitsTraining {
    pub inner: InnerLoop,
}

/// A method compared with the exact derivative.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(super) struct Beside {
    /// `None` if the exact derivative is not finite.
    cosine: Option<f64>,
    size: Option<f64>,
}

/// The results at one inner step.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Found {
    exact: Option<f64>,
    inner_loss: Option<f64>,
    growth_rate: Option<f64>,
    calm_step: Option<f64>,
    adjoint: Beside,
    adjoint_growth_rate: Option<f64>,
    trust_exits: Option<f64>,
    forgetful: Beside,
    hpo_sgld: Beside,
}

fn problem() -> Result<Problem> {
    let digits = Digits::all();
    let rows = |from: usize| -> Result<(Array, Array)> {
        let pixels = digits.pixels[from * PIXELS..(from + ROWS) * PIXELS].iter().map(|&p| p as f64).collect();
        Ok((
            Array::from_f64([ROWS, PIXELS], pixels)?,
            Array::from_i32([ROWS], digits.labels[from..from + ROWS].to_vec())?,
        ))
    };
    let ((x, y), (x_outside, y_outside)) = (rows(0)?, rows(ROWS)?);
    let net = |weights: fn(usize, usize) -> Variable, biases: f64| Net {
        first: weights(PIXELS, HIDDEN),
        first_bias: Variable::constant([HIDDEN], biases),
        second: weights(HIDDEN, CLASSES),
        second_bias: Variable::constant([CLASSES], biases),
    };
    let penalties = net(|rows, columns| Variable::constant([rows, columns], PENALTY), PENALTY);
    let start = net(|rows, columns| Variable::normal([rows, columns], (rows as f64).sqrt().recip()), 0.0);
    Ok(Problem::builder(penalties, start)
        .data("x", x)
        .data("y", y)
        .data("x outside", x_outside)
        .data("y outside", y_outside)
        .inner(|s, l, t| {
            let drawn = s.minibatch(ROWS, BATCH);
            let loss = nn::cross_entropy(forward(s.data("x").gather(drawn, 0), t), s.data("y").gather(drawn, 0));
            let leaves = [
                (l.first, t.first),
                (l.first_bias, t.first_bias),
                (l.second, t.second),
                (l.second_bias, t.second_bias),
            ];
            leaves.iter().fold(loss, |sum, (l, t)| sum + (*l * t.square()).sum_all() * 0.5)
        })
        .outer(|s, _, t| nn::cross_entropy(forward(s.data("x outside"), t), s.data("y outside")))
        .dtype(DType::F64)
        .build()?
        .erase())
}

fn training_label(step: f64) -> String {
    label(&format!("digits, step {step}"))
}

impl DigitsTraining {
    pub fn label(&self) -> String {
        training_label(self.inner.step)
    }
}

impl Measure for DigitsTraining {
    type Found = Found;

    fn take(&self, place: &Place) -> Result<Found> {
        let problem = problem()?;
        let session = Session::new(&problem, &place.executor)?.stopped_by(place.signal.clone());
        let (InnerLoop { step, steps, .. }, key) = (self.inner, Key::from_seed(5));
        // Without the diagnosis around it, which refuses numbers beyond the range: here they are an answer.
        let take = |method: &dyn Method, inner: &InnerLoop| -> Result<(Vec<f64>, Hypergradient)> {
            let found = method.compile(&session, inner)?.estimate(&mut session.state(key)?, key, step)?;
            Ok((found.value.numbers()?, found))
        };
        let (exact, reverse) = take(&Rmd { storage: Storage::Checkpoints }, &self.inner)?;
        (place.progress)(0.5);
        let beside = |value: &[f64]| {
            let norm = |x: &[f64]| x.iter().map(|x| x * x).sum::<f64>().sqrt();
            let (own, truth) = (norm(value), norm(&exact));
            let cosine = value.iter().zip(&exact).map(|(v, e)| (v / own) * (e / truth)).sum::<f64>();
            Beside { cosine: finite(cosine), size: finite(own / truth) }
        };
        // The last tenth is kept.
        let kept = (steps / 10).max(1);
        let inner = InnerLoop { burn_in: steps - kept, ..self.inner };
        let adjoint = LangevinAdjoint::default();
        let (value, forward) = take(&adjoint, &inner)?;
        let (forgetful, _) = take(&LangevinAdjoint { horizon: HORIZON, ..adjoint }, &inner)?;
        Ok(Found {
            exact: finite(exact.iter().map(|x| x * x).sum::<f64>().sqrt()),
            inner_loss: finite(reverse.inner_loss),
            growth_rate: reverse.diagnostics.growth_rate,
            calm_step: reverse.diagnostics.calm_step,
            adjoint: beside(&value),
            adjoint_growth_rate: forward.diagnostics.growth_rate,
            trust_exits: forward.diagnostics.trust_exits,
            forgetful: beside(&forgetful),
            hpo_sgld: beside(&take(&HpoSgld::default(), &inner)?.0),
        })
    }
}

fn finite(x: f64) -> Option<f64> {
    Some(x).filter(|x| x.is_finite())
}

/// By inner step.
pub(super) fn found(done: &Finished) -> Result<Vec<(f64, Found)>> {
    let one = |&step: &f64| Ok((step, done.measured(&training_label(step))?));
    STEPS.iter().map(one).collect()
}

impl Found {
    /// The cosines as rows: there is a claim if a hypergradient exists.
    pub fn rows(&self, step: f64) -> Vec<Row> {
        let setting = format!("MLP on digits, γ = {step}");
        let one = |method: &str, beside: &Beside| {
            let cosine = beside.cosine.unwrap_or(f64::NAN);
            let mut row = Row::new(NAME, method, "cosine to exact reverse mode", cosine).setting(&setting);
            row.verdict = Verdict::NotClaimed;
            row
        };
        vec![
            one("langevin-adjoint", &self.adjoint),
            one("langevin-adjoint, horizon 1000", &self.forgetful),
            one("hpo-sgld", &self.hpo_sgld),
        ]
    }
}

/// All inner steps as a table.
pub(super) fn table(all: &[(f64, Found)]) -> bilevel_report::Table {
    let number = |x: Option<f64>| {
        x.map_or("–".into(), |x| match x.abs() {
            0.0 => "0".into(),
            small if !(1e-2..1e4).contains(&small) => format!("{x:.1e}"),
            _ => format!("{x:.2}"),
        })
    };
    let both = |beside: &Beside| format!("{}, {}", number(beside.cosine), number(beside.size));
    let row = |(step, found): &(f64, Found)| {
        vec![
            format!("{step}"),
            number(found.exact),
            number(found.growth_rate),
            both(&found.adjoint),
            number(found.trust_exits),
            both(&found.forgetful),
            both(&found.hpo_sgld),
        ]
    };
    bilevel_report::Table {
        columns: vec![
            Column::numeric("inner step γ"),
            Column::numeric("exact, norm"),
            Column::numeric("growth rate"),
            Column::numeric("adjoint: cosine, size"),
            Column::numeric("begun anew"),
            Column::numeric("horizon 1000"),
            Column::numeric("HPO-SGLD"),
        ],
        rows: all.iter().map(row).collect(),
        caption: "One training of an MLP on the digits, against exact reverse mode through all of it".into(),
    }
}
