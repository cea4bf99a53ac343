//! Our times compared with the peers': alternating rounds, so that a busy machine slows all alike, and a summary.

use crate::cases::driven;
use crate::cases::timed::{Call, programs};
use crate::cases::wide;
use crate::error::Result;
use crate::long::wide_run::Run;
use crate::timing::calls::time;
use crate::timing::flops::flops;
use crate::timing::goals::goal;
use crate::timing::line::{Line, Unit};
use crate::timing::peak::peak_rate;
use crate::timing::peers::Peer;
use bilevel_cpu::Cpu;

/// The measurements and their number of repetitions.
pub struct Plan {
    /// Names of cases.
    pub cases: Vec<String>,
    /// Threads of our team.
    pub threads: usize,
    /// Repetitions a round.
    pub reps: usize,
    /// Rounds: ours, first peer, second peer, ours, …
    pub rounds: usize,
    /// Whether to report the arithmetic floor, and with it the summary, without peers too.
    pub floor: bool,
}

/// One program's figures over all rounds.
#[derive(Clone, Debug)]
pub struct Summary {
    /// Ours.
    pub ours: Line,
    /// The line of the bare program, if ours goes through the library.
    pub bare: Option<Line>,
    /// Each peer's.
    pub peers: Vec<Line>,
    /// Milliseconds its products and convolutions take at the peak rate; `None` if other work dominates.
    pub floor_ms: Option<f64>,
}

/// Runs everything, printing each line as it comes and the summary at the end.
pub fn run(plan: &Plan, peers: &[Peer]) -> Result<()> {
    let mut rows = vec![];
    let mut peak = 0.0f64;
    let summary = plan.floor || !peers.is_empty();
    for name in &plan.cases {
        let programs = programs(name)?;
        let mut lines: Vec<Line> = vec![];
        let mut say = |line: Line| {
            say!("{}", line.json());
            lines.push(line);
        };
        for _ in 0..plan.rounds {
            // A separate team for each round, so that none of its threads is awake during a peer's.
            let cpu = Cpu::with_threads(plan.threads);
            for timed in &programs {
                match driven::time(timed, &cpu, plan.reps)? {
                    Some(line) => {
                        say(line);
                        say(time(timed, &cpu, plan.reps)?.bare());
                    }
                    None => say(time(timed, &cpu, plan.reps)?),
                }
            }
            drop(cpu);
            if summary && programs.iter().any(|timed| timed.call == Call::Evaluate) {
                peak = peak.max(peak_rate(plan.threads, 12));
            }
            for peer in peers {
                peer.run(name)?.into_iter().for_each(&mut say);
            }
        }
        if name == "wide" {
            peak_memory(plan.threads)?;
        }
        for timed in &programs {
            let work = (timed.call == Call::Evaluate).then(|| flops(&timed.program) as f64);
            rows.extend(collect(&timed.name, &lines, work));
        }
    }
    if summary {
        // The floor needs the peak, which is known only now: until here `floor_ms` held operations.
        rows.iter_mut().for_each(|row| row.floor_ms = row.floor_ms.map(|work| work / peak * 1e3));
        print_summary(&rows, peak, plan.threads);
    }
    Ok(())
}

/// Goal for the most memory of the case wide through the library, in arrays of λ's size.
const ARRAYS: f64 = 7.0;

/// Prints the memory of the case wide, each way in a separate process.
fn peak_memory(threads: usize) -> Result<()> {
    let run = |bare| Run { count: wide::COUNT, iterations: 3, stop: None, folder: None, bare, threads };
    run(true).in_a_child()?;
    let peak = run(false).in_a_child()?.peak_bytes.map(|bytes| bytes as f64 / (4 * wide::COUNT) as f64);
    let met = peak.map_or("null".into(), |peak| (peak <= ARRAYS).to_string());
    say!("{{\"case\": \"wide\", \"peak_arrays\": {}, \"goal\": {ARRAYS}, \"met\": {met}}}", number(peak));
    Ok(())
}

/// The rounds of one program merged, by peer.
fn collect(case: &str, lines: &[Line], work: Option<f64>) -> Option<Summary> {
    let of = |peer: &str| {
        let rounds: Vec<Line> = lines.iter().filter(|l| l.case == case && l.peer == peer).cloned().collect();
        Line::merged(&rounds)
    };
    let peers = ["jax", "torch"].into_iter().filter_map(of).collect();
    Some(Summary { ours: of("bilevel")?, bare: of("bare"), peers, floor_ms: work })
}

impl Summary {
    /// The fastest peer.
    pub fn best_peer(&self) -> Option<&Line> {
        self.peers.iter().min_by(|a, b| seconds(a).total_cmp(&seconds(b)))
    }

    /// Our median as a share of this peer's.
    pub fn ratio_to(&self, peer: &Line) -> f64 {
        seconds(&self.ours) / seconds(peer)
    }

    /// Whether the goal is met; none without a goal or the peer it names.
    pub fn met(&self) -> Option<bool> {
        let goal = goal(&self.ours.case)?;
        let peer = match goal.of {
            Some(name) => self.peers.iter().find(|line| line.peer == name)?,
            None => self.best_peer()?,
        };
        Some(self.ratio_to(peer) <= goal.ratio)
    }

    /// Our median as a multiple of the floor.
    pub fn over_floor(&self) -> Option<f64> {
        Some(seconds(&self.ours) * 1e3 / self.floor_ms?)
    }

    /// The line as JSON; `null` for unknown values.
    pub fn json(&self) -> String {
        let goal = goal(&self.ours.case);
        let best = self.best_peer();
        format!(
            "{{\"case\": \"{}\", \"ratio\": {}, \"best_peer\": {}, \"goal\": {}, \"goal_of\": {}, \"met\": {}, \
             \"over_bare\": {}, \"floor_ms\": {}, \"over_floor\": {}}}",
            self.ours.case,
            number(best.map(|peer| self.ratio_to(peer))),
            best.map_or("null".into(), |peer| format!("\"{}\"", peer.peer)),
            goal.map_or("null".into(), |goal| goal.ratio.to_string()),
            goal.map_or("null".into(), |goal| format!("\"{}\"", goal.of.unwrap_or("best"))),
            self.met().map_or("null".into(), |met| met.to_string()),
            number(self.bare.as_ref().map(|bare| self.ratio_to(bare))),
            number(self.floor_ms),
            number(self.over_floor()),
        )
    }
}

fn seconds(line: &Line) -> f64 {
    line.median / line.unit.per_second()
}

fn number(value: Option<f64>) -> String {
    value.map_or("null".into(), |value| format!("{value:.4}"))
}

fn print_summary(rows: &[Summary], peak: f64, threads: usize) {
    rows.iter().for_each(|row| say!("{}", row.json()));
    if peak > 0.0 {
        say!("{{\"peak_gflops\": {:.1}, \"threads\": {threads}}}", peak / 1e9);
    }
    say!("");
    say!("{}", table(rows).trim_end());
}

/// The summary for people: medians, ratio to the best peer, goal, multiple of the floor.
fn table(rows: &[Summary]) -> String {
    let mut text = format!(
        "{:<20}{:>14}{:>14}{:>14}{:>8}{:>14}{:>6}{:>11}{:>12}{:>12}\n",
        "case", "bilevel", "jax", "torch", "ratio", "goal", "met", "over bare", "floor ms", "over floor"
    );
    for row in rows {
        let of = |name: &str| row.peers.iter().find(|line| line.peer == name).map(cell);
        let or_dash = |value: Option<String>| value.unwrap_or_else(|| "-".into());
        let goal = goal(&row.ours.case).map(|g| format!("{} of {}", g.ratio, g.of.unwrap_or("best")));
        text += &format!(
            "{:<20}{:>14}{:>14}{:>14}{:>8}{:>14}{:>6}{:>11}{:>12}{:>12}\n",
            row.ours.case,
            cell(&row.ours),
            or_dash(of("jax")),
            or_dash(of("torch")),
            or_dash(row.best_peer().map(|peer| format!("{:.3}", row.ratio_to(peer)))),
            or_dash(goal),
            or_dash(row.met().map(|met| if met { "yes" } else { "no" }.into())),
            or_dash(row.bare.as_ref().map(|bare| format!("{:.2}", row.ratio_to(bare)))),
            or_dash(row.floor_ms.map(|ms| format!("{ms:.2}"))),
            or_dash(row.over_floor().map(|ratio| format!("{ratio:.2}"))),
        );
    }
    text
}

fn cell(line: &Line) -> String {
    let digits = if line.unit == Unit::Microseconds && line.median < 10.0 { 3 } else { 1 };
    format!("{:.digits$} {}", line.median, line.unit.name())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(peer: &str, case: &str, unit: Unit, median: f64) -> Line {
        Line { peer: peer.into(), case: case.into(), unit, median, best: median }
    }

    #[test]
    fn the_goal_of_a_named_peer_is_measured_against_it() {
        let ms = |peer: &str, median| line(peer, "conv64_grad", Unit::Milliseconds, median);
        let lines =
            [ms("bilevel", 50.0), ms("bilevel", 51.0), ms("bilevel", 90.0), ms("jax", 60.0), ms("torch", 100.0)];
        let row = collect("conv64_grad", &lines, Some(17.0)).unwrap();
        assert_eq!((row.best_peer().unwrap().peer.as_str(), row.met()), ("jax", Some(true)));
        let json = row.json();
        assert!(
            json.starts_with(r#"{"case": "conv64_grad", "ratio": 0.8500, "best_peer": "jax", "goal": 0.6"#),
            "{json}"
        );
        assert!(
            json.contains(r#""met": true, "over_bare": null, "floor_ms": 17.0000, "over_floor": 3.0000"#),
            "{json}"
        );
    }

    #[test]
    fn units_may_differ_and_what_is_missing_is_null() {
        let us = |peer: &str, median| line(peer, "digits", Unit::Microseconds, median);
        let lines = [us("bilevel", 500.0), us("bare", 400.0), line("jax", "digits", Unit::Milliseconds, 2.0)];
        let row = collect("digits", &lines, None).unwrap();
        assert_eq!(row.ratio_to(&row.peers[0]), 0.25);
        assert!(
            row.json().ends_with(r#""met": true, "over_bare": 1.2500, "floor_ms": null, "over_floor": null}"#),
            "{}",
            row.json()
        );
        let alone = collect("digits", &lines[..1], None).unwrap();
        assert!(alone.json().contains(r#""ratio": null, "best_peer": null"#), "{}", alone.json());
        assert!(collect("mlp_grad", &lines, None).is_none());
        assert!(table(&[row, alone]).lines().all(|l| !l.is_empty()));
    }
}
