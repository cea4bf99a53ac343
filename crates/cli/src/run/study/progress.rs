//! How far a study is: items that are done, parts of those that are being done, and the time left.
//!
//! Items are weighted by their work, in gradient steps. Work that an item had behind it when this command resumed it
//! does not count, so that the time left is estimated from the work done since:
//!
//!   left = elapsed · (total − done) / (done − done before)

use crate::terminal::progress::Progress;
use crate::terminal::readable::duration;
use bilevel::State;
use bilevel::observers::{Beginning, Iteration, Observer};
use bilevel_run::Item;
use std::ops::ControlFlow;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

/// The finished share of the whole before a time left is shown.
const LEAST_SHARE: f64 = 1e-3;

/// An item that is being done.
struct Current {
    label: String,
    weight: f64,
    /// Its part that is done, from 0 to 1.
    part: f64,
}

#[derive(Default)]
struct Seen {
    /// Items that are done, and all that are known of.
    done: usize,
    total: usize,
    /// The work of both.
    done_weight: f64,
    total_weight: f64,
    /// Work that was there before this command.
    before: f64,
    current: Vec<Current>,
}

impl Seen {
    /// Work that is done, parts of items included.
    fn weight(&self) -> f64 {
        self.done_weight + self.current.iter().map(|item| item.weight * item.part).sum::<f64>()
    }

    /// The share of the whole that is done.
    fn share(&self) -> f64 {
        self.weight() / self.total_weight.max(f64::MIN_POSITIVE)
    }

    /// Seconds left, estimated from the work done in this many.
    fn left(&self, elapsed: f64) -> Option<f64> {
        let worked = self.weight() - self.before;
        let known = worked > LEAST_SHARE * self.total_weight;
        known.then(|| elapsed * (self.total_weight - self.weight()).max(0.0) / worked)
    }
}

/// The progress of a study, reported by its items from any thread.
pub struct StudyProgress {
    board: Progress,
    began: Instant,
    seen: Mutex<Seen>,
}

impl StudyProgress {
    /// Shown on this board.
    pub fn new(board: Progress) -> Arc<Self> {
        Arc::new(StudyProgress { board, began: Instant::now(), seen: Mutex::default() })
    }

    fn change(&self, change: impl FnOnce(&mut Seen)) {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        change(&mut seen);
        let left = seen.left(self.began.elapsed().as_secs_f64());
        self.board.show(seen.share(), || {
            let going = seen.current.iter().map(|item| format!("{} {:.0} %", item.label, 100.0 * item.part));
            let left = left.map_or(String::new(), |left| format!("about {} left  ", duration(left)));
            format!("{} of {} done  {left}{}", seen.done, seen.total, going.collect::<Vec<_>>().join("  "))
        });
    }

    /// Items that are done and all that are known of, and the seconds left.
    pub fn counts(&self) -> (usize, usize, Option<f64>) {
        let seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        (seen.done, seen.total, seen.left(self.began.elapsed().as_secs_f64()))
    }

    /// More items are known of, some of which are done already.
    pub fn expect(&self, weights: impl IntoIterator<Item = (f64, bool)>) {
        self.change(|seen| {
            for (weight, is_done) in weights {
                (seen.total, seen.total_weight) = (seen.total + 1, seen.total_weight + weight);
                if is_done {
                    (seen.done, seen.done_weight) = (seen.done + 1, seen.done_weight + weight);
                    seen.before += weight;
                }
            }
        });
    }

    /// An item is begun.
    pub fn begin(&self, label: &str, weight: f64) {
        self.change(|seen| {
            // An item that lacked memory begins a second time.
            seen.current.retain(|item| item.label != label);
            seen.current.push(Current { label: label.into(), weight, part: 0.0 });
        });
    }

    /// Resumes an item at the part that an earlier command reached.
    fn resume(&self, label: &str, part: f64) {
        self.change(|seen| {
            if let Some(item) = seen.current.iter_mut().find(|item| item.label == label) {
                item.part = part.clamp(0.0, 1.0);
                seen.before += item.weight * item.part;
            }
        });
    }

    /// A part of an item is done.
    pub fn part(&self, label: &str, part: f64) {
        self.change(|seen| {
            if let Some(item) = seen.current.iter_mut().find(|item| item.label == label) {
                item.part = part.clamp(0.0, 1.0);
            }
        });
    }

    /// An item is done.
    pub fn end(&self, label: &str, line: Option<String>) {
        self.change(|seen| {
            let weight = seen.current.iter().find(|item| item.label == label).map_or(0.0, |item| item.weight);
            (seen.done, seen.done_weight) = (seen.done + 1, seen.done_weight + weight);
            seen.current.retain(|item| item.label != label);
        });
        if let Some(line) = line {
            self.say(&line);
        }
    }

    /// A line that stays.
    pub fn say(&self, line: &str) {
        self.board.say(line);
    }

    /// Takes the board away.
    pub fn close(&self) {
        self.board.end();
    }
}

/// The weights of items: that of a measurement is the mean of the study's runs.
pub fn weights(items: &[Item]) -> Vec<f64> {
    let known: Vec<f64> = items.iter().filter_map(Item::weight).collect();
    let mean = if known.is_empty() { 1.0 } else { known.iter().sum::<f64>() / known.len() as f64 };
    items.iter().map(|item| item.weight().unwrap_or(mean)).collect()
}

/// Reports the progress of one run.
pub struct Teller {
    /// The item.
    pub label: String,
    /// Its last iteration.
    pub until: u32,
    /// The progress of the study to update.
    pub progress: Arc<StudyProgress>,
}

impl Teller {
    fn part(&self, iterations: u32) -> f64 {
        f64::from(iterations) / f64::from(self.until.max(1))
    }
}

impl Observer for Teller {
    fn on_start(&mut self, beginning: &Beginning) -> ControlFlow<String> {
        self.until = beginning.until;
        self.progress.resume(&self.label, self.part(beginning.done));
        ControlFlow::Continue(())
    }

    fn on_iteration(&mut self, iteration: &Iteration, _: &State) -> ControlFlow<String> {
        self.progress.part(&self.label, self.part(iteration.number));
        ControlFlow::Continue(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_left_is_judged_by_what_was_done_since_the_command_began() {
        let progress = StudyProgress::new(Progress::stderr(true));
        progress.expect([(100.0, true), (100.0, false), (200.0, false)]);
        progress.begin("half", 100.0);
        progress.resume("half", 0.5);
        let at = |progress: &StudyProgress| {
            let seen = progress.seen.lock().unwrap();
            (seen.share(), seen.left(10.0))
        };
        assert_eq!(at(&progress), (0.375, None), "nothing was done yet");
        progress.part("half", 0.75);
        // 25 in ten seconds, and 225 to go.
        assert_eq!(at(&progress), (0.4375, Some(90.0)));
        progress.end("half", None);
        assert_eq!(at(&progress), (0.5, Some(40.0)));
        assert_eq!((progress.counts().0, progress.counts().1), (2, 3));
    }
}
