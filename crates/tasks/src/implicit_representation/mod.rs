//! Meta-learned initialisations for implicit representations: after a few gradient steps from λ on one image, or on one
//! view of a scene, a network should represent it.
//!
//! The signals of an outer iteration are learned side by side, each by a separate network that starts at λ; see
//! `family` for the losses.

pub mod adapt;
pub mod family;
mod images;
mod lamps;
pub mod matching;
mod network;
#[cfg(test)]
mod tests;
mod views;

use adapt::Conditions;
use bilevel::observers::StopSignal;
use bilevel::optimizers::{Adam, InnerOptimizer};
use bilevel::{Array, Cpu, DType, Error, InnerLoop, Key, Precision, Problem, Result};
use bilevel_report::{Photograph, Photographs, Section};
use bilevel_run::LambdaLeaf;
use bilevel_run::{Context, Defaults, Task};
use family::Family;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Its name, and that of its study.
pub const NAME: &str = "implicit-representation";

/// The kind of signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Signal {
    /// An image.
    Images,
    /// A scene, seen from known places.
    Views,
}

/// The networks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// With sines between its layers, for images.
    Siren,
    /// With rectifiers, on sines and cosines of the coordinates, for images.
    Fourier,
    /// Colour and density at every place, for views.
    Nerf,
}

impl Kind {
    fn word(self) -> &'static str {
        match self {
            Kind::Siren => "siren",
            Kind::Fourier => "fourier",
            Kind::Nerf => "nerf",
        }
    }
}

/// Initialisations of networks that represent signals.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ImplicitRepresentation {
    /// kind of signal: images, or views of a scene
    pub signal: Signal,
    /// below --data, a folder or archive of pictures or a folder of scenes; empty for digits and made-up lamps
    pub source: String,
    /// siren or fourier for images, nerf for views
    pub network: Kind,
    /// units of each hidden layer
    pub width: usize,
    /// hidden layers
    pub layers: usize,
    /// frequency: ω of every layer (siren), the deviation of frequencies (fourier), or log₂ of the highest (nerf)
    pub frequency: f64,
    /// frequencies of the first layer of fourier and nerf
    pub features: usize,
    /// pixels in each row and column; 8 for the digits
    pub side: usize,
    /// signals to learn from
    pub signals: usize,
    /// signals that only measures and pictures see
    pub held_out: usize,
    /// signals of one outer iteration, side by side
    pub tasks: usize,
    /// learning rate of the shown adaptation, and of the inner loop by default
    pub learning_rate: f64,
    /// steps of the shown adaptation, and of the inner loop by default
    pub steps: usize,
    /// weight of ‖λ − θ‖² in the outer loss, with θ held fixed: the paper's extra term
    pub extra: f64,
    /// views of each scene; the last fifth is for the outer loss
    pub views: usize,
    /// rays of each scene in a step
    pub rays: usize,
    /// places along a ray
    pub samples: usize,
    /// start of rays, from the camera
    pub near: f64,
    /// end of rays
    pub far: f64,
}

impl Default for ImplicitRepresentation {
    /// Digits by a small SIREN.
    fn default() -> Self {
        ImplicitRepresentation {
            signal: Signal::Images,
            source: String::new(),
            network: Kind::Siren,
            width: 24,
            layers: 2,
            frequency: 10.0,
            features: 32,
            side: images::DIGIT,
            signals: 256,
            held_out: 16,
            tasks: 4,
            learning_rate: 0.01,
            steps: 2,
            extra: 0.0,
            views: 5,
            rays: 32,
            samples: 16,
            near: 2.5,
            far: 5.5,
        }
    }
}

impl ImplicitRepresentation {
    /// Colour pictures of a folder, by a SIREN as large as the paper's: five layers of 256 with ω = 60.
    pub fn pictures(source: &str, side: usize) -> Self {
        ImplicitRepresentation {
            source: source.into(),
            width: 256,
            layers: 5,
            frequency: 60.0,
            side,
            signals: 1024,
            held_out: 32,
            tasks: 4,
            ..Self::default()
        }
    }

    /// Made-up lamps of `side`² pixels by the paper's simplified NeRF: six layers of 256, 20 frequencies, 128 rays of
    /// 64 places, 32 inner steps of 0.5.
    pub fn lamps(side: usize) -> Self {
        ImplicitRepresentation {
            signal: Signal::Views,
            network: Kind::Nerf,
            width: 256,
            layers: 6,
            frequency: 8.0,
            features: 20,
            side,
            signals: 64,
            held_out: 8,
            tasks: 1,
            learning_rate: 0.5,
            steps: 32,
            views: 25,
            rays: 128,
            samples: 64,
            ..Self::default()
        }
    }

    /// Refuses settings outside their range.
    fn check(&self) -> Result<()> {
        let require = |holds: bool, name: &'static str, value: f64, must: &'static str| match holds {
            true => Ok(()),
            false => Err(Error::setting(name, value, must)),
        };
        let sizes = [
            ("width", self.width),
            ("layers", self.layers),
            ("features", self.features),
            ("side", self.side),
            ("signals", self.signals),
            ("held_out", self.held_out),
            ("tasks", self.tasks),
            ("steps", self.steps),
            ("rays", self.rays),
            ("samples", self.samples),
        ];
        sizes.iter().try_for_each(|&(name, size)| {
            require((1..=1 << 20).contains(&size), name, size as f64, "from 1 to 2^20")
        })?;
        require(self.side <= 1024, "side", self.side as f64, "at most 1024")?;
        require(self.tasks <= self.signals, "tasks", self.tasks as f64, "at most task.signals")?;
        require((2..=1000).contains(&self.views), "views", self.views as f64, "from 2 to 1000")?;
        let scenes = (self.signals + self.held_out) * self.views * self.side * self.side;
        let small = self.signal == Signal::Images || scenes < 1 << 30;
        require(small, "signals", self.signals as f64, "so few that all views together have fewer than 2^30 pixels")?;
        let digits = self.signal == Signal::Images && self.source.is_empty();
        require(
            !digits || self.side == images::DIGIT,
            "side",
            self.side as f64,
            "8, as the digits have, or name a source",
        )?;
        for (name, value) in [("frequency", self.frequency), ("learning_rate", self.learning_rate), ("near", self.near)]
        {
            require(value > 0.0 && value.is_finite(), name, value, "above 0")?;
        }
        require(self.extra >= 0.0 && self.extra.is_finite(), "extra", self.extra, "at least 0")?;
        require(self.far > self.near && self.far.is_finite(), "far", self.far, "above task.near")
    }

    /// As few held-out signals as a report can show without delay, and the numbers of steps after which it shows them.
    fn looks(&self) -> (Self, Vec<usize>) {
        match self.signal {
            Signal::Images => {
                let few = ImplicitRepresentation { held_out: self.held_out.min(3), ..self.clone() };
                (few, vec![0, self.steps, 5 * self.steps])
            }
            // One view to learn from, and one to show.
            Signal::Views => (ImplicitRepresentation { held_out: 1, views: 2, ..self.clone() }, vec![0, self.steps]),
        }
    }
}

impl Task for ImplicitRepresentation {
    const NAME: &'static str = NAME;
    const SUMMARY: &'static str =
        "initialisations from which a network learns an image, or a scene from one view, in a few steps";

    fn build(&self, context: &Context) -> Result<Problem> {
        Family::read(self, context)?.learning(context.dtype)
    }

    fn defaults(&self) -> Defaults {
        let (method, rate, iterations) = match self.signal {
            Signal::Images => ("rmd", 1e-3, 1000),
            Signal::Views => ("reptile", 1e-3, 200),
        };
        Defaults {
            method,
            inner: InnerLoop::new(self.learning_rate, self.steps),
            curvature: 0.5 / self.learning_rate,
            optimizer: InnerOptimizer::Adam(Adam::default()),
            rate,
            warm_up: 0,
            cosine: true,
            iterations,
            cold: true,
            dtype: DType::F32,
        }
    }

    fn reads_data(&self) -> bool {
        !self.source.is_empty()
    }

    fn show(&self, lambda: &[LambdaLeaf], context: &Context) -> Vec<Section> {
        match self.shown(lambda, context) {
            Ok(photographs) => vec![Section::Photographs(photographs)],
            Err(error) => vec![Section::Text { title: "Held-out signals".into(), text: format!("{error}.") }],
        }
    }
}

impl ImplicitRepresentation {
    /// A held-out signal after several numbers of steps from λ.
    fn shown(&self, lambda: &[LambdaLeaf], context: &Context) -> Result<Photographs> {
        let (few, counts) = self.looks();
        let few = ImplicitRepresentation { signals: 1, tasks: 1, ..few };
        let family = Family::read(&few, context)?;
        let (executor, signal) = (Cpu::new(), StopSignal::new());
        let key = Key::from_seed(context.seed);
        let (precision, pictures) = (Precision::Full, few.held_out);
        let conditions = Conditions { executor: &executor, signal: &signal, key, precision, pictures };
        let found = family.adapt(&arrays(lambda)?, &counts, &conditions)?;
        let row = |(number, truth): (usize, &Vec<f32>)| {
            let mut images = vec![family.photograph(String::new(), &family.picture(truth))];
            images.extend(
                found.iter().map(|adapted| family.photograph(adapted.caption(number), &adapted.pictures[number])),
            );
            (format!("signal {}", number + 1), images)
        };
        let steps = counts.iter().map(|steps| format!("{steps} steps"));
        Ok(Photographs {
            title: "Signals that were held out, learned from λ".into(),
            columns: std::iter::once("truth".to_string()).chain(steps).collect(),
            rows: family.truth().iter().enumerate().map(row).collect(),
        })
    }
}

/// λ as arrays.
pub fn arrays(lambda: &[LambdaLeaf]) -> Result<Vec<Array>> {
    let one = |leaf: &LambdaLeaf| {
        let values = leaf.values.iter().map(|value| *value as f32).collect();
        Ok(Array::from_f32(&leaf.shape, values)?)
    };
    lambda.iter().map(one).collect()
}

impl Family {
    /// A picture in 256 levels.
    pub fn photograph(&self, caption: String, levels: &[u8]) -> Photograph {
        Photograph { caption, columns: self.task.side, colours: self.channels == 3, levels: levels.to_vec() }
    }
}
