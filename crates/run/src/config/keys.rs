//! The meaning of every key of a configuration in a few words, for the comments of a file and for the schema.

use crate::{Registry, meanings};

/// The meanings of the keys of a run, given its task and method.
pub struct Meanings {
    own: Vec<(String, String)>,
}

impl Meanings {
    /// The keys of this task and method.
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
        // The settings of an optimizer have the same meaning everywhere.
        let shared = key.strip_prefix("inner.optimizer.").map(|rest| format!("outer.optimizer.{rest}"));
        let key = shared.as_deref().unwrap_or(key);
        let setting = || bilevel::methods::setting_meaning(key.strip_prefix("method.")?);
        KEYS.iter().find(|(known, _)| *known == key).map(|(_, meaning)| *meaning).or_else(setting).unwrap_or("")
    }
}

const KEYS: &[(&str, &str)] = &[
    ("seed", "the seed of all random numbers"),
    ("chains", "independent chains averaged in each hypergradient"),
    ("threads", "number of threads, 0 for all cores; results do not depend on it"),
    ("shard_from", "on several ranks, shard tensors of at least so many numbers; 0 for none"),
    ("device", "device: cpu, cuda, cuda:N or auto; results differ in the last digits"),
    ("dtype", "f32 or f64"),
    ("precision", "precision of matrix products and convolutions, in f32 only: full, tf32 or bf16"),
    ("data", "folder with data files, for tasks that need them"),
    ("task", "the problem"),
    ("task.name", "see 'bilevel list'"),
    ("start", "files to start from, such as those in the folder of another run"),
    ("start.lambda", "file of the hyperparameters to start from; empty for the task's own start"),
    ("start.theta", "file of the parameters to start from; empty for the task's own start"),
    ("start.checksum", "the checksum of these files, which is filled in when the run begins"),
    ("method", "how the hypergradient is estimated"),
    ("method.name", "see 'bilevel list'"),
    ("method.storage.truncated", "walk back only this many steps"),
    ("inner", "the inner loop, which trains between two steps of the hyperparameters"),
    ("inner.step", "inner step"),
    ("inner.steps", "inner steps of a hypergradient; samples = N is burn_in + N of them"),
    ("inner.samples", "inner steps kept by methods that average: steps less burn_in"),
    ("inner.burn_in", "inner steps before the first one that is kept, for methods that average"),
    ("inner.temperature", "temperature of the inner noise, 0 for none"),
    ("inner.noise_scale", "factor on the inner noise"),
    ("inner.shrink", "reduce the inner step if no hypergradient exists"),
    ("inner.optimizer", "how a gradient of the inner loss becomes a step"),
    ("inner.optimizer.name", "sgd, momentum, rmsprop, adam or adamw"),
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
    ("outer.improvement", "smallest change that counts as an improvement"),
    (
        "outer.patience_on",
        "the metric that patience follows, such as 'highest accuracy', counted in evaluations; empty for the outer \
            loss",
    ),
    (
        "outer.keep_best",
        "return λ and θ of the best evaluation, such as 'highest accuracy' or 'lowest outer loss'; empty for the last \
            iteration",
    ),
    ("outer.time_limit", "stop after this time, such as 90s, 9m or 1h30m, restarted by a resumption; empty for never"),
    ("outer.optimizer", "the optimizer of the hyperparameters"),
    ("outer.optimizer.name", "sgd, momentum, rmsprop, adam or adamw"),
    ("outer.optimizer.decay", "share of the velocity that is carried over; for rmsprop, of the running mean square"),
    ("outer.optimizer.nesterov", "look ahead by one step"),
    ("outer.optimizer.beta1", "share of the running mean that is carried over"),
    ("outer.optimizer.beta2", "share of the running mean square that is carried over"),
    ("outer.optimizer.epsilon", "small number whose square is added inside the square root, for stability"),
    ("outer.optimizer.weight_decay", "factor on the variable itself, which is added to its step"),
    ("outer.schedule", "the outer learning rate over time"),
    ("outer.schedule.shape", "constant, step or cosine"),
    ("outer.schedule.warm_up", "iterations in which the rate grows to its full size"),
    ("outer.schedule.every", "iterations between two changes of the rate"),
    ("outer.schedule.factor", "factor on the rate at each change"),
    ("outer.schedule.over", "length of the cosine, in iterations"),
    ("outer.schedule.last", "the rate at the end of the cosine"),
    (
        "split",
        "the division of the rows with labels, for tasks that divide rows; without settings it is the task's own",
    ),
    ("split.train", "rows to train on: a fraction, or a whole number of rows"),
    ("split.validation", "rows to choose the hyperparameters by, as a fraction or a number; 0 for all that are left"),
    ("split.held_out", "rows that no method sees, as a fraction or a number; 0 leaves them to held_out.share"),
    ("split.stratified", "every label in every part as often as among all rows"),
    ("split.groups", "file with one group per line for each row, all of whose rows stay together; empty for none"),
    (
        "split.rows",
        "JSON file with the numbers of the rows, counted from 0, in lists train, validation, held_out and test; empty for none",
    ),
    ("split.checksum", "the checksum of these files, which is filled in when the run begins"),
    (
        "held_out",
        "validation rows that no method sees, on which a run tests its hyperparameters, for tasks that split rows",
    ),
    ("held_out.share", "the share of the validation rows"),
    (
        "held_out.every",
        "iterations between evaluations, 0 for none; longer if they would take more than 5 % of the work. If the \
            held-out loss has risen, the run returns the best hyperparameters",
    ),
    ("held_out.patience", "stop after this many evaluations in a row with a risen loss, 0 for never"),
    ("held_out.compare", "compare the hyperparameters at the end with one tuned value and with none, on the same rows"),
    (
        "held_out.folds",
        "number of folds, 0 for none; one training for each fold leaves it out and validates on it, and a final one \
            uses all rows",
    ),
    (
        "held_out.shrinkage",
        "pull each group of hyperparameters towards one value with this standard deviation, 0 for none",
    ),
    ("held_out.retrain", "train once more at the end, on all rows with labels"),
    ("checkpoint", "when the run is saved"),
    ("checkpoint.every", "iterations between checkpoints; the end is always saved"),
    ("checkpoint.theta", "also save the final parameters, in theta.safetensors"),
    ("metrics", "when metrics are evaluated"),
    ("metrics.every", "iterations between evaluations of the task's metrics"),
    ("metrics.tensorboard", "also write event files for TensorBoard"),
    ("about", "text for lists and reports; may be changed at any time"),
    ("about.name", "a name for the run"),
    ("about.tags", "tags for finding the run"),
    ("about.note", "a note to keep with the run"),
    ("metrics.diagnose", "iterations between diagnoses of the hypergradient, 0 for never"),
];
