//! Posed views: photographs or renderings of one scene, each with its camera, from NeRF's `transforms.json`. With W
//! pixels per row and α the horizontal angle of view, the focal length is f = W/2 / tan(α/2) pixels. The ray through
//! column i and row j of a camera with rotation R and place o is
//!
//!   r(t) = o + t·R·d,   d = ((i + ½ − W/2)/f, −(j + ½ − H/2)/f, −1)

use crate::error::Result;
use crate::images::Images;
use crate::input::Input;
use crate::readers::archive;
use crate::readers::pictures::{Channels, Settings, decode_all};
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};

/// Views of one scene.
#[derive(Clone, Debug, PartialEq)]
pub struct Views {
    /// The pictures, with their opacity: `[n, 4, h, w]`.
    pub images: Images,
    /// The horizontal angle of view, in radians.
    pub angle: f64,
    /// For each camera, the map from its coordinates to those of the scene: rotation and position in the first three
    /// rows.
    pub poses: Vec<[[f64; 4]; 4]>,
    /// The paths of the pictures, as given in the description.
    pub paths: Vec<String>,
}

#[derive(Deserialize)]
struct Description {
    camera_angle_x: f64,
    frames: Vec<Frame>,
}

#[derive(Deserialize)]
struct Frame {
    file_path: String,
    transform_matrix: [[f64; 4]; 4],
}

impl Views {
    /// The rays through all pixels of a view, row by row: origin and direction.
    ///
    /// ```
    /// use bilevel_data::{Images, readers::views::Views};
    /// let straight = [[1.0, 0.0, 0.0, 0.0], [0.0, 1.0, 0.0, 0.0], [0.0, 0.0, 1.0, 5.0], [0.0, 0.0, 0.0, 1.0]];
    /// let images = Images::new([1, 4, 1, 1], vec![0; 4])?;
    /// let views = Views { images, angle: 1.0, poses: vec![straight], paths: vec!["r_0".into()] };
    /// assert_eq!(views.rays(0), [([0.0, 0.0, 5.0], [0.0, 0.0, -1.0])]);
    /// # Ok::<(), bilevel_data::Error>(())
    /// ```
    pub fn rays(&self, view: usize) -> Vec<([f64; 3], [f64; 3])> {
        let Some(pose) = self.poses.get(view) else { return vec![] };
        let [_, _, height, width] = self.images.shape();
        let focal = width as f64 / 2.0 / (self.angle / 2.0).tan();
        let ray = |row: usize, column: usize| {
            let x = (column as f64 + 0.5 - width as f64 / 2.0) / focal;
            let y = -(row as f64 + 0.5 - height as f64 / 2.0) / focal;
            let axis = |axis: usize| pose[axis][0] * x + pose[axis][1] * y - pose[axis][2];
            ([0, 1, 2].map(|axis| pose[axis][3]), [0, 1, 2].map(axis))
        };
        (0..height).flat_map(|row| (0..width).map(move |column| ray(row, column))).collect()
    }
}

/// Reads the views that a description in a folder, zip file or tar file lists, such as `transforms_train.json`.
///
/// Paths in it are relative to its folder; a path without an extension, as in NeRF's files, means a `.png` file.
///
/// ```
/// assert!(bilevel_data::readers::views::read("no/such/lego.zip", "transforms_train.json").is_err());
/// ```
pub fn read(input: impl Into<Input>, description: &str) -> Result<Views> {
    let input = input.into();
    let is_description = |path: &str| path.rsplit('/').next() == Some(description);
    let wanted = |path: &str| path.ends_with(".png") || is_description(path);
    let mut files = BTreeMap::new();
    archive::visit(&input, &wanted, &mut |path, bytes| {
        files.insert(path, bytes);
        Ok(())
    })?;
    let mut descriptions = files.iter().filter(|(path, _)| is_description(path));
    let (path, bytes) = match (descriptions.next(), descriptions.next()) {
        (Some(one), None) => one,
        (None, _) => return Err(input.damaged(format!("has no {description} in it"))),
        (Some(_), Some(_)) => return Err(input.damaged(format!("has more than one {description} in it"))),
    };
    let folder = path.strip_suffix(description).unwrap_or_default();
    let found: Description =
        serde_json::from_slice(bytes).map_err(|error| input.damaged(format!("has a {description} with {error}")))?;
    check(&input, &found)?;
    let mut taken = BTreeSet::new();
    let pictures = found.frames.iter().map(|frame| {
        let path = frame.file_path.trim_start_matches("./");
        let named = |ending: &str| files.get_key_value(&format!("{folder}{path}{ending}"));
        let (name, bytes) = named("")
            .or_else(|| named(".png"))
            .ok_or_else(|| input.damaged(format!("has no picture {path}, which its {description} names")))?;
        let twice = || input.damaged(format!("has the picture {path} twice in its {description}"));
        taken.insert(name).then_some((name.as_str(), bytes.as_slice())).ok_or_else(twice)
    });
    let pictures: Vec<(&str, &[u8])> = pictures.collect::<Result<_>>()?;
    let settings = Settings { channels: Channels::Rgba, ..Settings::default() };
    let (mut size, mut pixels) = (None, vec![]);
    decode_all(&input, &pictures, &settings, &mut size, &mut pixels)?;
    let [height, width] = size.unwrap_or_default();
    Ok(Views {
        images: Images::new([pictures.len(), settings.channels.count(), height, width], pixels)?,
        angle: found.camera_angle_x,
        poses: found.frames.iter().map(|frame| frame.transform_matrix).collect(),
        paths: found.frames.iter().map(|frame| frame.file_path.clone()).collect(),
    })
}

fn check(input: &Input, found: &Description) -> Result<()> {
    if !(found.camera_angle_x > 0.0 && found.camera_angle_x < std::f64::consts::PI) {
        return Err(
            input.damaged(format!("has the camera angle {}, which is not between 0 and π", found.camera_angle_x))
        );
    }
    if found.frames.is_empty() {
        return Err(input.damaged("lists no views"));
    }
    Ok(())
}
