//! The meaning of every key of a configuration in a few words, for the comments of a file and for the schema.

use bilevel_tasks::{Registry, meanings};

/// The meanings of the keys of a run, given its task and method.
pub struct Meanings {
    own: Vec<(String, String)>,
}

impl Meanings {
    /// Of these.
    pub fn of(registry: &Registry, task: &str, method: &str) -> Self {
        let mut own = vec![];
        if let Ok(task) = registry.known_task(task) {
            own.extend(meanings(&task.schema()).into_iter().map(|(key, meaning)| (format!("task.{key}"), meaning)));
        }
        if let Ok(method) = registry.known_method(method) {
            let keys = method.usual().table().keys().filter(|key| !method.meaning(key).is_empty());
            own.extend(keys.map(|key| (format!("method.{key}"), method.meaning(key).to_string())));
        }
        Meanings { own }
    }

    /// The meaning of a key; empty for an unknown one, which a test rules out.
    pub fn get(&self, key: &str) -> &str {
        if let Some((_, meaning)) = self.own.iter().find(|(known, _)| known == key) {
            return meaning;
        }
        // What an optimizer is told means the same wherever it is.
        let shared = key.strip_prefix("method.optimizer.").map(|rest| format!("outer.optimizer.{rest}"));
        let key = shared.as_deref().unwrap_or(key);
        let setting = || bilevel::setting_meaning(key.strip_prefix("method.")?);
        KEYS.iter().find(|(known, _)| *known == key).map(|(_, meaning)| *meaning).or_else(setting).unwrap_or("")
    }
}

const KEYS: &[(&str, &str)] = &[
    ("seed", "the seed of all random numbers"),
    ("chains", "independent chains averaged in each hypergradient"),
    ("threads", "number of threads, 0 for all cores; results do not depend on it"),
    ("device", "where to run: cpu, cuda, cuda:N or auto; results differ in the last digits"),
    ("dtype", "f32 or f64"),
    ("precision", "precision of matrix products and convolutions, in f32 only: full, tf32 or bf16"),
    ("data", "folder with data files, for tasks that need them"),
    ("task", "the problem"),
    ("task.name", "see 'bilevel list'"),
    ("method", "how the hypergradient is estimated"),
    ("method.name", "see 'bilevel list'"),
    ("method.storage.truncated", "walk back only this many steps"),
    ("inner", "how the inner loop changes over the outer iterations"),
    ("inner.schedule", "a factor on the inner step, over the outer iterations"),
    ("inner.schedule.shape", "constant, step or cosine"),
    ("inner.schedule.warm_up", "outer iterations in which the inner step grows to its full size"),
    ("inner.schedule.every", "outer iterations between two changes of the inner step"),
    ("inner.schedule.factor", "factor on the inner step at each change"),
    ("inner.schedule.over", "length of the cosine, in outer iterations"),
    ("inner.schedule.last", "the factor at the end of the cosine"),
    ("outer", "the outer loop, which moves the hyperparameters"),
    ("outer.iterations", "outer iterations"),
    ("outer.rate", "outer learning rate"),
    ("outer.cold", "start the inner parameters from scratch in every iteration"),
    ("outer.clip", "largest norm of a hypergradient, 0 for no limit"),
    ("outer.tolerance", "stop when the norm of the hypergradient is at most this, 0 for never"),
    ("outer.patience", "stop after this many iterations without improvement, 0 for never"),
    ("outer.improvement", "smallest decrease of the outer loss that counts as an improvement"),
    ("outer.optimizer", "how a hypergradient becomes a step"),
    ("outer.optimizer.name", "sgd, momentum, rmsprop, adam or adamw"),
    ("outer.optimizer.decay", "share of the velocity that is kept; for rmsprop, of the running mean square"),
    ("outer.optimizer.nesterov", "look ahead by one step"),
    ("outer.optimizer.beta1", "share of the running mean that is kept"),
    ("outer.optimizer.beta2", "share of the running mean square that is kept"),
    ("outer.optimizer.epsilon", "small number whose square is added to the mean square under the root"),
    ("outer.optimizer.weight_decay", "factor on the variable itself, which is added to its step"),
    ("outer.schedule", "the outer learning rate over time"),
    ("outer.schedule.shape", "constant, step or cosine"),
    ("outer.schedule.warm_up", "iterations in which the rate grows to its full size"),
    ("outer.schedule.every", "iterations between two changes of the rate"),
    ("outer.schedule.factor", "factor on the rate at each change"),
    ("outer.schedule.over", "length of the cosine, in iterations"),
    ("outer.schedule.last", "the rate at the end of the cosine"),
    ("checkpoint", "when the run is saved"),
    ("checkpoint.every", "iterations between checkpoints; the end is always saved"),
    ("metrics", "when the run is measured"),
    ("metrics.every", "iterations between measurements of the task's own measures"),
    ("metrics.tensorboard", "also write event files for TensorBoard"),
    ("metrics.diagnose", "iterations between diagnoses of the hypergradient, 0 for never"),
];
