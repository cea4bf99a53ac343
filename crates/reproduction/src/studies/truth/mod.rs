//! The truth suite: every method on every problem with a known hypergradient. It includes whole trainings of small
//! networks, and a training of an MLP on the digits over a range of inner steps.
//!
//! The problems, the measurements and the claims of methods are those of [`bilevel_truth`]; here they become rows, one
//! table and one heat map.

mod digits_training;

use bilevel::methods::AnyMethod;
use bilevel::{InnerLoop, Method, Result, methods};
use bilevel_report::{Column, Panel, Pictures, Section};
use bilevel_run::price::price;
use bilevel_run::{Findings, Finished, Item, Measure, Place, Plan, Registry, Row, Study, Verdict, label};
use bilevel_truth::{self as truth, Effort, Table, Verdict as Found};
use digits_training::DigitsTraining;
use serde::Serialize;

const NAME: &str = "truth";
/// A bias is shown between these powers of ten.
const SHADES: (f64, f64) = (-6.0, 1.0);

/// The effort if a method claims nothing. A standard error of four replicas is too uncertain to hold a claim to: a
/// deviation of three of them is chance in one of seventeen.
const BRIEF: Effort = Effort { replicas: 4, calls: 1, length: 1 };

/// One method on all problems, or on all trainings of networks.
#[derive(Serialize)]
struct OneMethod {
    method: &'static str,
    effort: Effort,
    /// Inner steps of each training; the problems with a known truth without.
    training: Option<usize>,
}

impl Measure for OneMethod {
    type Found = Table;

    fn take(&self, place: &Place) -> Result<Table> {
        let problems = match self.training {
            Some(steps) => truth::trainings(steps)?,
            None => truth::problems()?,
        };
        let method = [AnyMethod::named(self.method)?];
        let mut rows = vec![];
        for (number, problem) in problems.iter().enumerate() {
            if place.signal.is_set() {
                break;
            }
            let one = std::slice::from_ref(problem);
            // A method that claims nothing here is measured briefly.
            let claims = method[0].claims().cover(&problem.facts);
            let effort = if claims { self.effort } else { BRIEF };
            rows.extend(Table::measure(&method, one, effort, &place.executor)?.rows);
            (place.progress)((number + 1) as f64 / problems.len() as f64);
        }
        Ok(Table { rows })
    }
}

/// Trainings of networks are measured with the methods that follow training, in full without forward mode, whose cost
/// is that of every penalty times all steps.
const FOLLOWING: [&str; 3] = ["rmd", "langevin-adjoint", "hpo-sgld"];

fn item_name(method: &str) -> String {
    label(method)
}

fn training_name(method: &str) -> String {
    label(&format!("trainings by {method}"))
}

/// The study.
pub(super) struct Truth;

impl Study for Truth {
    fn name(&self) -> &str {
        NAME
    }

    fn title(&self) -> &str {
        "Beyond the paper: every method against known hypergradients, and problems without one"
    }

    fn items(&self, plan: &Plan) -> Result<Vec<Item>> {
        let effort = plan.choose(Effort::QUICK, Effort::FULL);
        let steps = plan.choose(100, 2000);
        let mut items: Vec<Item> = methods::all()
            .iter()
            .filter(|info| !plan.is_quick() || QUICK.contains(&info.name))
            .map(|info| Item::measure(item_name(info.name), OneMethod { method: info.name, effort, training: None }))
            .collect();
        items.extend(FOLLOWING.iter().map(|method| {
            let measure = OneMethod { method, effort, training: Some(steps) };
            Item::measure(training_name(method), measure)
        }));
        items.extend(digits_training::STEPS.iter().map(|&step| {
            let measure = DigitsTraining { inner: InnerLoop::new(step, plan.choose(100, 2000)) };
            Item::measure(measure.label(), measure)
        }));
        Ok(items)
    }

    fn findings(&self, plan: &Plan, done: &Finished) -> Result<Findings> {
        let gather = |names: &mut dyn Iterator<Item = String>| -> Result<Table> {
            let mut all = Table::default();
            for name in names.filter(|name| done.get(name).is_some()) {
                all.rows.extend(done.measured::<Table>(&name)?.rows);
            }
            Ok(all)
        };
        let known = gather(&mut methods::all().iter().map(|info| item_name(info.name)))?;
        let trainings = gather(&mut FOLLOWING.iter().map(|method| training_name(method)))?;
        let mut rows: Vec<Row> =
            known.rows.iter().chain(&trainings.rows).map(|row| shown(row, plan.registry)).collect();
        let digits = digits_training::found(done)?;
        rows.extend(digits.iter().flat_map(|(step, found)| found.rows(*step)));
        let broken = known.broken_claims().len() + trainings.broken_claims().len();
        let said = match broken {
            0 => "Every method keeps what its documentation claims, on every problem that the claim covers.".into(),
            1 => "One claim does not hold.".into(),
            _ => format!("{broken} claims do not hold."),
        };
        Ok(Findings {
            rows,
            tables: vec![by_method(&known, plan.registry), digits_training::table(&digits)],
            said: vec![said],
            sections: vec![Section::Pictures(heat_map(&known))],
            ..Findings::default()
        })
    }
}

/// The methods of a quick run: a cheap one of each kind.
const QUICK: [&str; 5] = ["hpo-sgld", "langevin-adjoint", "ift-cg", "amigo-cg", "rmd-fo"];

/// A row of the suite as one of a study.
fn shown(row: &truth::Row, registry: &Registry) -> Row {
    let verdict = match &row.verdict {
        Found::Failed(why) if row.kept == Some(false) => Verdict::NotReproduced(why.clone()),
        _ if row.kept == Some(false) => Verdict::NotReproduced("its claim does not hold".into()),
        Found::Right => Verdict::Reproduced,
        Found::Noisy | Found::Off | Found::NoTruth => Verdict::NotClaimed,
        Found::NotApplicable(why) | Found::Failed(why) => Verdict::NotRun(why.clone()),
    };
    let cost = registry.known_method(&row.method).ok().map(|known| price(row.oracles, known.passes));
    let bias = row.relative_bias().unwrap_or(f64::NAN);
    let spread = row.spread.zip(row.truth).map_or(f64::NAN, |(spread, truth)| spread / truth);
    // The standard error follows from the seeds; a method that does not apply has none.
    let seeds = if row.verdict.applies() { row.replicas.max(1) } else { 0 };
    let mut shown =
        Row::new(NAME, &row.method, "relative bias", bias).setting(&row.problem).cost(cost).over(spread, seeds);
    // Set directly: a bias of 0 has no comparison that could make it undecided.
    shown.verdict = verdict;
    shown
}

/// For each method: the number of its tested claims that hold, and the cost of a hypergradient.
fn by_method(table: &Table, registry: &Registry) -> bilevel_report::Table {
    let names: Vec<String> = table.heat_map().methods;
    let line = |name: &String| {
        let rows = || table.rows.iter().filter(|row| row.method == *name);
        let applies = rows().filter(|row| row.verdict.applies()).count();
        let claimed = rows().filter(|row| row.kept.is_some()).count();
        let held = rows().filter(|row| row.kept == Some(true)).count();
        let right = rows().filter(|row| row.verdict == Found::Right).count();
        let worst = rows().filter(|row| row.claimed).filter_map(|row| row.relative_bias()).fold(0.0, f64::max);
        let passes = registry.known_method(name).map(|known| known.passes);
        let costs: Vec<f64> = rows()
            .filter(|row| row.bias.is_some())
            .filter_map(|row| Some(price(row.oracles, *passes.as_ref().ok()?)))
            .collect();
        let cost = bilevel_run::statistics::median(&costs);
        let cell = |x: f64| if x.is_finite() { format!("{x:.1e}") } else { "–".into() };
        vec![
            name.clone(),
            format!("{held} of {claimed}"),
            format!("{right} of {applies}"),
            cell(if claimed == 0 { f64::NAN } else { worst }),
            cell(cost),
        ]
    };
    bilevel_report::Table {
        columns: vec![
            Column::text("method"),
            Column::numeric("claims that hold"),
            Column::numeric("correct, of those it applies to"),
            Column::numeric("largest relative bias claimed"),
            Column::numeric("gradients, median"),
        ],
        rows: names.iter().map(line).collect(),
        caption: "Methods against known hypergradients".into(),
    }
}

/// log₁₀ of the relative bias, methods down and problems across.
fn heat_map(table: &Table) -> Pictures {
    let map = table.heat_map();
    let shade = |cell: &Option<truth::Cell>| match cell.as_ref().and_then(|cell| cell.relative_bias) {
        Some(bias) => bias.max(1e-300).log10().clamp(SHADES.0, SHADES.1),
        None => f64::NAN,
    };
    let panel = Panel {
        title: format!("{} down, {} across", map.methods.join(", "), map.problems.join(", ")),
        rows: map.methods.len(),
        columns: map.problems.len(),
        values: map.cells.iter().flatten().map(shade).collect(),
    };
    Pictures { title: "log₁₀ of the relative bias".into(), panels: vec![panel] }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The rows of a new method alone, of the problems to which it applies.
    #[test]
    #[ignore = "minutes: prints the rows of the method in BILEVEL_METHOD, for crates/run/data/truth.jsonl"]
    fn rows_of_one_method() {
        let name = std::env::var("BILEVEL_METHOD").expect("BILEVEL_METHOD names a method");
        let info = methods::all().iter().find(|info| info.name == name).expect("a method of the library");
        let work = OneMethod { method: info.name, effort: Effort::FULL, training: None };
        let registry = bilevel_tasks::register(Registry::new());
        let table = work.take(&Place::new(&registry, bilevel::Cpu::with_threads(1))).unwrap();
        assert!(table.broken_claims().is_empty(), "{:#?}", table.broken_claims());
        table
            .rows
            .iter()
            .filter(|row| row.verdict.applies())
            .for_each(|row| println!("{}", shown(row, &registry).to_json()));
    }
}
