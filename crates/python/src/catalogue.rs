//! Names, defaults and meanings of methods and optimizers, and pictures.

use crate::error::{self, of};
use crate::problem::{inner_loop as read_loop, settings};
use bilevel::Method;
use bilevel::methods::{check_settings, setting_meaning};
use bilevel_report::{Axis, Curve, Panel, Pictures, Plot};
use bilevel_run::Registry;
use pyo3::prelude::*;
use serde_json::{Value, json};

/// All methods as JSON: their descriptions, and their settings with defaults and meanings. On request, which takes
/// longer, also types and ranges.
#[pyfunction]
#[pyo3(signature = (ranges=false))]
pub fn methods(ranges: bool) -> PyResult<String> {
    let registry = Registry::new();
    let one = |known: &bilevel_run::KnownMethod| {
        let own = known.usual().table().iter().filter(|(key, _)| *key != "name");
        let setting = |(key, default): (&String, &Value)| {
            let meaning = setting_meaning(key).unwrap_or_default();
            let mut row = json!({"name": key, "default": default, "meaning": meaning, "choices": known.words(key)});
            if ranges {
                row["type"] = type_of(default).into();
                row["range"] = range(&registry, known.usual(), key, default).into();
            }
            row
        };
        let settings: Vec<Value> = own.map(setting).collect();
        let info = &known.info;
        json!({
            "name": info.name, "summary": info.summary, "cost": info.cost, "memory": info.memory, "when": info.when,
            "settings": settings,
        })
    };
    Ok(Value::Array(registry.methods().iter().map(one).collect()).to_string())
}

/// The type of a setting in Python.
fn type_of(default: &Value) -> &'static str {
    match default {
        Value::Bool(_) => "bool",
        Value::Number(number) if number.is_f64() => "float",
        Value::Number(_) => "int",
        Value::String(_) => "str",
        _ => "dict",
    }
}

/// Which numbers a setting can be, in the words with which the method refuses another; none if it refuses nothing.
fn range(registry: &Registry, usual: &bilevel_run::Settings, key: &str, default: &Value) -> Option<String> {
    let wrong: &[Value] = match type_of(default) {
        "float" => &[json!(-1.0), json!(0.0), json!(2.0)],
        "int" => &[json!(0), json!(1)],
        _ => &[],
    };
    wrong.iter().find_map(|value| {
        let mut settings = usual.clone();
        settings.set(key, value.clone());
        let method = registry.read_method(&settings).ok()?;
        match check_settings(&*method, &method.usual_loop()) {
            Err(bilevel::Error::Setting { name, must, .. }) if name == key => Some(must.to_string()),
            _ => None,
        }
    })
}

/// All optimizers as JSON, with their settings and defaults.
#[pyfunction]
pub fn optimizers() -> String {
    let one = |known: &bilevel_run::KnownOptimizer| Value::Object(known.usual().table().clone());
    Value::Array(Registry::new().optimizers().iter().map(one).collect()).to_string()
}

/// Refuses settings of a method that are unknown or outside their range; returns all of them, and its usual inner loop, as JSON.
#[pyfunction]
#[pyo3(signature = (method, inner=None))]
pub fn check_method(method: &str, inner: Option<&str>) -> PyResult<(String, String)> {
    let method = settings(method)?;
    let registry = Registry::new();
    let read = registry.read_method(&method).map_err(error::setting)?;
    let inner = read_loop(inner, &*read)?;
    check_settings(&*read, &inner).map_err(of)?;
    let mut full = registry.known_method(method.name()).map_err(of)?.usual().clone();
    for (key, value) in method.table() {
        full.set(key, value.clone());
    }
    let usual = read.loop_use().adapt(inner);
    let inner = serde_json::to_string(&usual).map_err(error::other)?;
    Ok((Value::Object(full.table().clone()).to_string(), inner))
}

/// The inner loop of a JSON table, checked, with all its defaults.
#[pyfunction]
pub fn inner_loop(json: &str) -> PyResult<String> {
    let read: bilevel::InnerLoop = serde_json::from_str(json).map_err(error::setting)?;
    read.check().map_err(of)?;
    serde_json::to_string(&read).map_err(error::other)
}

/// A curve: its name, points, and low and high at each of them.
type Drawn = (String, Vec<(f64, f64)>, Option<Vec<(f64, f64)>>);

/// Curves as SVG.
#[pyfunction]
pub fn plot(title: String, x: String, y: String, logarithmic: bool, curves: Vec<Drawn>) -> String {
    let curve = |(name, points, band): Drawn| {
        let curve = Curve::new(name, points);
        match band {
            Some(band) => curve.with_band(band),
            None => curve,
        }
    };
    let y = if logarithmic { Axis::logarithmic(y) } else { Axis::linear(y) };
    Plot { title, x: Axis::linear(x), y, curves: curves.into_iter().map(curve).collect() }.svg()
}

/// A matrix: its title, rows, columns, and values row by row.
type Drawing = (String, usize, usize, Vec<f64>);

/// Matrices side by side as SVG, with one scale of colours.
#[pyfunction]
pub fn pictures(title: String, panels: Vec<Drawing>) -> String {
    let panel = |(title, rows, columns, values): Drawing| Panel { title, rows, columns, values };
    Pictures { title, panels: panels.into_iter().map(panel).collect() }.svg()
}
