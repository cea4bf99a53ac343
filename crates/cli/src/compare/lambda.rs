//! The hyperparameters that a method found, as pictures: mean over seeds.

use crate::folder::RunFolder;
use bilevel::whole_file::read_regular;
use bilevel_report::{Panel, Pictures};
use bilevel_tasks::Picture;
use safetensors::SafeTensors;
use safetensors::tensor::Dtype;

/// A leaf of λ that a run found; `None` where it cannot be read.
fn leaf(folder: &RunFolder, name: &str) -> Option<Vec<f64>> {
    let bytes = read_regular(&folder.lambda_file()).ok()?;
    let file = SafeTensors::deserialize(&bytes).ok()?;
    let view = file.tensor(name).ok()?;
    match view.dtype() {
        Dtype::F32 => {
            view.data().chunks_exact(4).map(|b| Some(f32::from_le_bytes(b.try_into().ok()?) as f64)).collect()
        }
        Dtype::F64 => view.data().chunks_exact(8).map(|b| Some(f64::from_le_bytes(b.try_into().ok()?))).collect(),
        _ => None,
    }
}

/// What runs in these folders found, as the experiment wants to be looked at.
pub fn pictures(method: &str, folders: &[&RunFolder], picture: Picture) -> Option<Pictures> {
    let leaves: Vec<Vec<f64>> = folders.iter().filter_map(|folder| leaf(folder, picture.leaf)).collect();
    let length = leaves.iter().map(Vec::len).min()?;
    let mean = |i: usize| leaves.iter().map(|leaf| leaf[i]).sum::<f64>() / leaves.len() as f64;
    let mean: Vec<f64> = (0..length).map(mean).collect();
    let panel = |number: usize| Panel {
        title: number.to_string(),
        rows: picture.rows,
        columns: picture.columns,
        values: picture.panel(&mean, number),
    };
    let over = if leaves.len() > 1 { format!(", mean of {} seeds", leaves.len()) } else { String::new() };
    let title = format!("λ by {method}{over}");
    Some(Pictures { title, panels: (0..picture.panels).map(panel).collect() })
}
