//! λ by layer: how large, and how many are exactly 0.

use bilevel_report::{Column, Plot, Table, count, number};
use bilevel_run::{LambdaLeaf, Series, figure};
use serde::{Deserialize, Serialize};

/// The penalties of the leaves of one layer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LayerPenalties {
    /// The layer.
    pub name: String,
    /// How many penalties it has.
    pub count: usize,
    /// How many of them are exactly 0.
    pub zeros: usize,
    /// Their mean.
    pub mean: f64,
    /// The largest.
    pub largest: f64,
}

/// λ by layer, in the order of the network: leaves of one layer, such as its kernel and its bias, count together.
///
/// ```
/// use bilevel_run::LambdaLeaf;
/// use bilevel_tasks::l1_regularisation::layers;
/// let leaf = |name: &str, values: &[f64]| LambdaLeaf { name: name.into(), shape: vec![values.len()], values: values.into() };
/// let found = layers(&[leaf("layers.0.weight", &[0.0, 0.3]), leaf("layers.0.bias", &[0.0]), leaf("layers.1.bias", &[1.0])]);
/// assert_eq!((found.len(), found[0].name.as_str(), found[0].count, found[0].zeros), (2, "layers.0", 3, 2));
/// assert!((found[0].mean - 0.1).abs() < 1e-12);
/// ```
pub fn layers(lambda: &[LambdaLeaf]) -> Vec<LayerPenalties> {
    let mut found: Vec<LayerPenalties> = vec![];
    for leaf in lambda {
        let name = leaf.name.rsplit_once('.').map_or(leaf.name.as_str(), |(layer, _)| layer);
        if found.last().is_none_or(|last| last.name != name) {
            found.push(LayerPenalties { name: name.into(), count: 0, zeros: 0, mean: 0.0, largest: 0.0 });
        }
        let Some(layer) = found.last_mut() else { continue };
        let before = layer.mean * layer.count as f64;
        layer.count += leaf.values.len();
        layer.zeros += leaf.values.iter().filter(|value| **value == 0.0).count();
        layer.mean = (before + leaf.values.iter().sum::<f64>()) / layer.count.max(1) as f64;
        layer.largest = leaf.values.iter().copied().fold(layer.largest, f64::max);
    }
    found
}

/// A line for every layer.
pub fn layer_table(layers: &[LayerPenalties]) -> Table {
    let columns = ["penalties", "exactly 0", "exactly 0, %", "mean", "largest"].map(Column::numeric);
    let row = |layer: &LayerPenalties| {
        vec![
            layer.name.clone(),
            count(layer.count as f64),
            count(layer.zeros as f64),
            format!("{:.1}", share(layer)),
            number(layer.mean),
            number(layer.largest),
        ]
    };
    Table {
        columns: std::iter::once(Column::text("layer")).chain(columns).collect(),
        rows: layers.iter().map(row).collect(),
        caption: String::new(),
    }
}

/// The share of penalties that are exactly 0, in percent.
fn share(layer: &LayerPenalties) -> f64 {
    100.0 * layer.zeros as f64 / layer.count.max(1) as f64
}

/// The mean penalty over the layers of several λ, if there are at least two layers.
pub fn layer_plot(title: &str, found: &[(String, &[LayerPenalties])]) -> Option<Plot> {
    let curve = |(name, layers): &(String, &[LayerPenalties])| -> Series {
        (name.clone(), layers.iter().enumerate().map(|(place, layer)| (place as f64, layer.mean)).collect())
    };
    let series: Vec<Series> = found.iter().map(curve).filter(|(_, points)| points.len() > 1).collect();
    (!series.is_empty()).then(|| figure(title, "layer, from the input", "mean penalty", series))
}
