//! Scenes as views from known cameras: lamps made here, or folders with camera poses in a `transforms.json`.

use super::lamps;
use bilevel::{Error, Result};
use bilevel_data::readers::views::{self, Views};
use std::path::{Path, PathBuf};

/// A camera that looks along its −z axis.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Camera {
    /// From its axes to those of the scene.
    pub rotation: [[f64; 3]; 3],
    /// Its position.
    pub origin: [f64; 3],
    /// Tangent of half its angle of view.
    pub slope: f64,
}

/// How many numbers a camera is.
pub(super) const CAMERA: usize = 13;

impl Camera {
    /// The direction of a point of its picture: ±1 to the right and downwards.
    pub fn direction(&self, [x, y]: [f64; 2]) -> [f64; 3] {
        self.rotation.map(|row| self.slope * (row[0] * x - row[1] * y) - row[2])
    }

    /// Rotation, place and slope in one row.
    pub fn numbers(&self) -> impl Iterator<Item = f32> {
        let all = self.rotation.as_flattened().iter().chain(&self.origin).chain([&self.slope]);
        all.map(|number| *number as f32).collect::<Vec<_>>().into_iter()
    }
}

/// A scene seen from several cameras.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Scene {
    /// One for each view.
    pub cameras: Vec<Camera>,
    /// Red, green and blue from 0 to 1 of every pixel, view by view and row by row, before white.
    pub colours: Vec<f32>,
}

/// So many lamps, made on all cores.
pub(super) fn lamps(count: usize, views: usize, side: usize) -> Vec<Scene> {
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let mut scenes = vec![Scene { cameras: vec![], colours: vec![] }; count];
    let each = count.div_ceil(threads).max(1);
    std::thread::scope(|scope| {
        for (chunk, scenes) in scenes.chunks_mut(each).enumerate() {
            let make = move || {
                scenes
                    .iter_mut()
                    .enumerate()
                    .for_each(|(lamp, scene)| *scene = lamps::scene(0, chunk * each + lamp, views, side))
            };
            scope.spawn(make);
        }
    });
    scenes
}

/// The names a description of views may have.
const DESCRIPTIONS: [&str; 2] = ["transforms.json", "transforms_train.json"];

/// The scenes of a folder: each of its folders and archives that has a description of views, in the order of their
/// names. If the folder itself is a scene, its views alternate between two scenes: one to learn from, one to be judged
/// by.
pub(super) fn read(folder: &Path, views: usize, side: usize) -> Result<Vec<Scene>> {
    let refuse = |reason: String| Error::other(reason);
    let place = folder.display();
    let entries =
        std::fs::read_dir(folder).map_err(|error| refuse(format!("cannot read the folder {place}: {error}")))?;
    let mut parts: Vec<PathBuf> = entries.filter_map(|entry| entry.ok().map(|entry| entry.path())).collect();
    parts.sort();
    let own = parts.iter().any(|part| part.file_name().is_some_and(|name| DESCRIPTIONS.iter().any(|d| name == *d)));
    let found: Vec<Views> = match own {
        true => vec![described(folder)?],
        false => parts.iter().filter(|part| holds_files(part)).map(|part| described(part)).collect::<Result<_>>()?,
    };
    match &found[..] {
        [] => Err(refuse(format!(
            "{place} has no views in it; every scene is a folder or an archive with pictures and a transforms.json"
        ))),
        [one] => Ok((0..2).map(|half| seen(one, (half..one.poses.len()).step_by(2).take(views), side)).collect()),
        all => Ok(all.iter().map(|scene| seen(scene, (0..scene.poses.len()).take(views), side)).collect()),
    }
    .and_then(|scenes: Vec<Scene>| match scenes.iter().map(|scene| scene.cameras.len()).min() {
        Some(least) if least < views => Err(refuse(format!(
            "{place} has a scene with {least} views instead of {views}; set task.views to at most {least}"
        ))),
        _ => Ok(scenes),
    })
}

/// Returns true for a possible scene: a folder, or a file with the name of an archive.
fn holds_files(path: &Path) -> bool {
    let name = path.file_name().map_or(String::new(), |name| name.to_string_lossy().to_lowercase());
    !name.starts_with('.') && (path.is_dir() || name.ends_with(".zip") || name.contains(".tar"))
}

fn described(path: &Path) -> Result<Views> {
    let mut first = None;
    for description in DESCRIPTIONS {
        match views::read(path, description) {
            Ok(views) => return Ok(views),
            Err(error) => first = first.or(Some(error)),
        }
    }
    first.map_or_else(|| Err(Error::other("a scene needs a transforms.json")), |error| Err(error.into()))
}

/// Some views of a scene in `side`² pixels, before white.
fn seen(views: &Views, chosen: impl Iterator<Item = usize>, side: usize) -> Scene {
    let [_, _, height, width] = views.images.shape();
    let mut scene = Scene { cameras: vec![], colours: vec![] };
    for view in chosen {
        let pose = &views.poses[view];
        let rotation = [0, 1, 2].map(|row: usize| [pose[row][0], pose[row][1], pose[row][2]]);
        let origin = [0, 1, 2].map(|row: usize| pose[row][3]);
        scene.cameras.push(Camera { rotation, origin, slope: (views.angle / 2.0).tan() });
        let image = views.images.image(view);
        let level = |channel: usize, row: usize, column: usize| {
            f64::from(image[(channel * height + row) * width + column]) / 255.0
        };
        for pixel in 0..side * side {
            let [rows, columns] =
                [(pixel / side, height), (pixel % side, width)].map(|(place, all)| block(place, side, all));
            let count = (rows.len() * columns.len()) as f64;
            let mut sum = [0.0; 3];
            for row in rows {
                for column in columns.clone() {
                    let opacity = level(3, row, column);
                    (0..3).for_each(|c| sum[c] += level(c, row, column) * opacity + 1.0 - opacity);
                }
            }
            scene.colours.extend(sum.map(|sum| (sum / count) as f32));
        }
    }
    scene
}

/// The pixels of a picture that one of `side` stands for; at least one.
fn block(place: usize, side: usize, all: usize) -> std::ops::Range<usize> {
    let from = place * all / side;
    from..((place + 1) * all / side).max(from + 1)
}
