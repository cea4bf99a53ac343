//! An L2 penalty for each feature of a logistic regression, chosen by the loss on other rows; both losses in minibatches.
//!
//!   L_T = mean over a minibatch of log(1 + exp(−yᵢ·xᵢθ)) + ½·Σ e^λⱼ·θⱼ²
//!   f   = mean over a minibatch of other rows of log(1 + exp(−yᵢ·xᵢθ))
//!
//! θ has few numbers, so that the exact gradient of f at the minimum of L_T is known at every λ: [`FeatureL2::exact`].

use crate::digits::Split;
use crate::logistic::{Exact, Rows};
use bilevel::graph::nn::softplus;
use bilevel::splits::Part;
use bilevel::{Array, DType, Error, InnerLoop, Leaf, Problem, Result, Scope, Tensor, Tree, Variable};
use bilevel_data::datasets::ijcnn1;
use bilevel_run::{Context, Defaults, Task};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Rows with targets −1 and 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum TwoClasses {
    /// embedded digits, even ones against odd ones, 64 features
    #[default]
    Digits,
    /// ijcnn1, 22 features, which `--data` must have: the training file inside, the test file outside
    Ijcnn1,
}

/// λ: the logarithm of each feature's penalty.
#[derive(Clone, Tree)]
#[tree(crate = "bilevel::graph")]
struct Penalties<T> {
    log_penalty: T,
}

/// Penalties for the features of a logistic regression.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct FeatureL2 {
    /// digits (embedded, even against odd) or ijcnn1 (from --data)
    pub source: TwoClasses,
    /// rows of a minibatch of either loss; 0 for all
    pub batch: usize,
    /// logarithm of every penalty at the start
    pub start: f64,
}

impl Default for FeatureL2 {
    fn default() -> Self {
        FeatureL2 { source: TwoClasses::Digits, batch: 64, start: 0.0 }
    }
}

impl FeatureL2 {
    /// Training rows and the rows that judge. Rows that do not fill a minibatch are left out, so that minibatches are
    /// disjoint and their mean is the loss on all rows.
    pub fn rows(&self, context: &Context) -> Result<[Rows; 2]> {
        let [inside, outside] = match self.source {
            TwoClasses::Digits => {
                let split = Split::new(context.seed);
                [split.train, split.validation].map(|part| Rows {
                    features: part.pixels.iter().map(|pixel| f64::from(*pixel)).collect(),
                    targets: part.labels.iter().map(|label| f64::from(1 - label % 2 * 2)).collect(),
                })
            }
            TwoClasses::Ijcnn1 => {
                let (train, test) = ijcnn1::load(context.data_dir("ijcnn1")?)?;
                [train, test].map(|table| Rows { features: table.values, targets: table.targets })
            }
        };
        let fewest = inside.targets.len().min(outside.targets.len());
        if self.batch > fewest {
            let must = "at most the number of rows";
            return Err(Error::setting("batch", self.batch, must));
        }
        Ok([inside, outside].map(|rows| rows.multiple_of(self.batch.max(1))))
    }

    /// The exact gradient of f at the minimum of L_T, on the same rows.
    pub fn exact(&self, context: &Context) -> Result<Exact> {
        let [inside, outside] = self.rows(context)?;
        Ok(Exact::new(inside, outside))
    }
}

/// The loss of each row, of all or of a minibatch.
fn losses(s: &Scope, batch: usize, theta: Tensor) -> Tensor {
    let mut both = ["x", "y"].map(|name| s.data(name));
    if batch > 0 {
        let drawn = s.epochs(both[0].dim(0), batch);
        both = both.map(|all| all.take(drawn));
    }
    let [x, y] = both;
    softplus(-(x.matmul(theta) * y))
}

impl Task for FeatureL2 {
    const NAME: &'static str = "feature-l2";
    const SUMMARY: &'static str = "a penalty for each feature of a logistic regression, in minibatches";

    fn build(&self, context: &Context) -> Result<Problem> {
        if !(-20.0..=5.0).contains(&self.start) {
            return Err(Error::setting("start", self.start, "from -20 to 5"));
        }
        let [inside, outside] = self.rows(context)?;
        let (batch, width) = (self.batch, inside.width());
        let log_penalty = Variable::constant([width, 1], self.start).at_least(-20.0).at_most(5.0).log_penalty();
        let table = |columns: usize, of: fn(&Rows) -> &Vec<f64>| {
            let one = |(part, rows): (Part, &Rows)| {
                Ok((part, Array::from_f64([rows.targets.len(), columns], of(rows).clone())?))
            };
            [(Part::Train, &inside), (Part::Validation, &outside)].map(one).into_iter().collect::<Result<Vec<_>>>()
        };
        Problem::builder(Penalties { log_penalty }, Leaf(Variable::constant([width, 1], 0.0)))
            .dtype(context.dtype)
            .parts("x", table(width, |rows| &rows.features)?)
            .parts("y", table(1, |rows| &rows.targets)?)
            .inner(move |s, l, t| {
                losses(s, batch, t.0).mean_all() + (l.log_penalty.exp() * t.0.square()).sum_all() * 0.5
            })
            .outer(move |s, _, t| losses(s, batch, t.0).mean_all())
            .outer_rows(|s, _, t| losses(s, 0, t.0))
            .measure("outer loss on all rows", |s, _, t| losses(s, 0, t.0).mean_all())
            .build()
            .map(Problem::erase)
    }

    fn defaults(&self) -> Defaults {
        Defaults {
            inner: InnerLoop::new(0.2, 20).at_temperature(1e-6),
            curvature: 5.0,
            iterations: 200,
            dtype: DType::F64,
            ..Defaults::default()
        }
    }

    fn reads_data(&self) -> bool {
        self.source == TwoClasses::Ijcnn1
    }
}
