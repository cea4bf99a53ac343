//! What every key of a configuration means, in a few words: for the comments of a file and for the schema.

use bilevel_tasks::{Registry, meanings};

/// What the keys of runs of one task by one method mean.
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

    /// What a key means; empty for one that is not known, which a test sees to.
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
    ("seed", "everything random follows from it"),
    ("chains", "independent chains averaged in each hypergradient"),
    ("threads", "threads to run on, 0 for all cores; results do not depend on it"),
    ("device", "where to run: cpu, cuda, cuda:N or auto; results differ in their last digits"),
    ("dtype", "f32 or f64"),
    ("precision", "what operands of matrix products are rounded to in f32: full, tf32 or bf16"),
    ("data", "folder of data files, where the task needs some"),
    ("task", "the problem"),
    ("task.name", "'bilevel list' names them"),
    ("method", "how the hypergradient is estimated"),
    ("method.name", "'bilevel list' names them"),
    ("method.storage.truncated", "walk back so many steps only"),
    ("inner", "how the inner loop changes over the outer iterations"),
    ("inner.schedule", "a factor on the inner step, over the outer iterations"),
    ("inner.schedule.shape", "constant, step or cosine"),
    ("inner.schedule.warm_up", "outer iterations in which the inner step grows to its full size"),
    ("inner.schedule.every", "outer iterations between two changes of the inner step"),
    ("inner.schedule.factor", "what the inner step is multiplied by"),
    ("inner.schedule.over", "outer iterations the cosine takes"),
    ("inner.schedule.last", "the factor at the end of the cosine"),
    ("outer", "the outer loop, which moves the hyperparameters"),
    ("outer.iterations", "outer iterations"),
    ("outer.rate", "outer learning rate"),
    ("outer.cold", "start the inner parameters anew in every iteration"),
    ("outer.clip", "largest norm of a hypergradient, 0 for no limit"),
    ("outer.tolerance", "stop when the hypergradient's norm is at most this, 0 for never"),
    ("outer.patience", "stop after so many iterations without improvement, 0 for never"),
    ("outer.improvement", "a fall of the outer loss by more than this is an improvement"),
    ("outer.optimizer", "how a hypergradient becomes a step"),
    ("outer.optimizer.name", "sgd, momentum, rmsprop, adam or adamw"),
    ("outer.optimizer.decay", "how much is kept of the velocity, for rmsprop of the running mean square"),
    ("outer.optimizer.nesterov", "look ahead by one step"),
    ("outer.optimizer.beta1", "how much of the running mean is kept"),
    ("outer.optimizer.beta2", "how much of the running mean square is kept"),
    ("outer.optimizer.epsilon", "its square is added to the mean square under the root"),
    ("outer.optimizer.weight_decay", "so many times the variable itself is added to its step"),
    ("outer.schedule", "the outer learning rate over time"),
    ("outer.schedule.shape", "constant, step or cosine"),
    ("outer.schedule.warm_up", "iterations in which the rate grows to its full size"),
    ("outer.schedule.every", "iterations between two changes of the rate"),
    ("outer.schedule.factor", "what the rate is multiplied by"),
    ("outer.schedule.over", "iterations the cosine takes"),
    ("outer.schedule.last", "the rate at the end of the cosine"),
    ("checkpoint", "when the run is saved"),
    ("checkpoint.every", "save every so many iterations, and at the end"),
    ("metrics", "when the run is measured"),
    ("metrics.every", "take the task's own measures every so many iterations"),
    ("metrics.tensorboard", "also write event files for TensorBoard"),
    ("metrics.diagnose", "look into the hypergradient every so many iterations, 0 for never"),
];
