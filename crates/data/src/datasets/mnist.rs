//! MNIST: 60 000 + 10 000 handwritten digits, grey, 28 × 28.

use crate::error::Result;
use crate::images::LabelledImages;
use crate::readers::idx;
use crate::registry::{Access, Dataset, Remote};
use std::path::Path;

/// Its name, licence, source and files.
pub const DATASET: Dataset = Dataset {
    name: "mnist",
    summary: "handwritten digits, 60 000 + 10 000 grey images of 28 x 28",
    licence: "usually given as CC BY-SA 3.0",
    home: "http://yann.lecun.com/exdb/mnist/",
    folder: "mnist",
    access: Access::Files(&[
        Remote {
            name: "train-images-idx3-ubyte.gz",
            url: "https://storage.googleapis.com/cvdf-datasets/mnist/train-images-idx3-ubyte.gz",
            bytes: 9_912_422,
            sha256: "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",
            unpack: None,
        },
        Remote {
            name: "train-labels-idx1-ubyte.gz",
            url: "https://storage.googleapis.com/cvdf-datasets/mnist/train-labels-idx1-ubyte.gz",
            bytes: 28_881,
            sha256: "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c",
            unpack: None,
        },
        Remote {
            name: "t10k-images-idx3-ubyte.gz",
            url: "https://storage.googleapis.com/cvdf-datasets/mnist/t10k-images-idx3-ubyte.gz",
            bytes: 1_648_877,
            sha256: "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",
            unpack: None,
        },
        Remote {
            name: "t10k-labels-idx1-ubyte.gz",
            url: "https://storage.googleapis.com/cvdf-datasets/mnist/t10k-labels-idx1-ubyte.gz",
            bytes: 4_542,
            sha256: "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6",
            unpack: None,
        },
    ]),
};

/// The training and test images, from the data folder.
///
/// ```
/// assert!(bilevel_data::datasets::mnist::load("no/such/folder").is_err());
/// ```
pub fn load(root: impl AsRef<Path>) -> Result<(LabelledImages, LabelledImages)> {
    let folder = root.as_ref().join(DATASET.folder);
    let part = |part: &str| {
        let file = |kind: &str| folder.join(format!("{part}-{kind}-ubyte.gz"));
        idx::read_labelled(file("images-idx3"), file("labels-idx1"), 10)
    };
    Ok((part("train")?, part("t10k")?))
}
