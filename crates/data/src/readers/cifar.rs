//! CIFAR-10 and CIFAR-100 in their binary form: records of a label byte (CIFAR-100: two, coarse and fine) and 3072
//! bytes, the red, green and blue plane of 32 × 32 pixels.

use crate::error::Result;
use crate::images::{Images, LabelledImages};
use crate::input::Input;
use crate::readers::archive;
use std::fmt;

/// Bytes of a picture.
const PICTURE: usize = 3 * 32 * 32;

/// The classes of CIFAR-10, in the order of their labels.
pub const CIFAR10_CLASSES: [&str; 10] =
    ["airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"];

/// The dataset, of the two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// CIFAR-10: one label, of 10 classes.
    Ten,
    /// CIFAR-100: a coarse label (20 classes) and a fine label (100 classes), of which the fine one is used.
    Hundred,
}

/// The part of the dataset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// The 50 000 training images.
    Train,
    /// The 10 000 test images.
    Test,
}

impl Kind {
    fn labels(self) -> usize {
        match self {
            Kind::Ten => 1,
            Kind::Hundred => 2,
        }
    }

    fn classes(self) -> usize {
        match self {
            Kind::Ten => 10,
            Kind::Hundred => 100,
        }
    }

    fn names(self) -> Vec<String> {
        match self {
            Kind::Ten => CIFAR10_CLASSES.map(String::from).to_vec(),
            Kind::Hundred => (0..100).map(|class| class.to_string()).collect(),
        }
    }

    /// Whether a file of the published archive belongs to this part.
    fn has(self, part: Part, file: &str) -> bool {
        match (self, part) {
            (Kind::Ten, Part::Train) => file.starts_with("data_batch_") && file.ends_with(".bin"),
            (Kind::Ten, Part::Test) => file == "test_batch.bin",
            (Kind::Hundred, Part::Train) => file == "train.bin",
            (Kind::Hundred, Part::Test) => file == "test.bin",
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Kind::Ten => "CIFAR-10",
            Kind::Hundred => "CIFAR-100",
        })
    }
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Part::Train => "training",
            Part::Test => "test",
        })
    }
}

/// Reads a file of records.
///
/// ```
/// use bilevel_data::{Input, readers::cifar};
/// let record: Vec<u8> = [3].into_iter().chain((0..3072).map(|i| (i % 256) as u8)).collect();
/// let set = cifar::read(Input::from_bytes("one cat", &record), cifar::Kind::Ten)?;
/// assert_eq!((set.images.shape(), set.labels[0], set.classes[3].as_str()), ([1, 3, 32, 32], 3, "cat"));
/// assert!(cifar::read(Input::from_bytes("half a cat", &record[..1000]), cifar::Kind::Ten).is_err());
/// # Ok::<(), bilevel_data::Error>(())
/// ```
pub fn read(input: impl Into<Input>, kind: Kind) -> Result<LabelledImages> {
    let input = input.into();
    records(&input, &input.bytes()?, kind)
}

/// Reads a part from the published archive (`cifar-10-binary.tar.gz`, `cifar-100-binary.tar.gz`, or any tar or zip
/// file with the same files in it), or from the folder it was unpacked into.
///
/// ```
/// use bilevel_data::{Error, readers::cifar};
/// let found = cifar::read_archive("no/such/cifar-10-binary.tar.gz", cifar::Kind::Ten, cifar::Part::Test);
/// assert!(matches!(found, Err(Error::Io { .. })));
/// ```
pub fn read_archive(input: impl Into<Input>, kind: Kind, part: Part) -> Result<LabelledImages> {
    let input = input.into();
    let mut files = vec![];
    let wanted = |path: &str| kind.has(part, path.rsplit('/').next().unwrap_or(path));
    archive::visit(&input, &wanted, &mut |path, bytes| {
        files.push((path, bytes));
        Ok(())
    })?;
    if files.is_empty() {
        return Err(input.damaged(format!("has no files of the {part} part of {kind}")));
    }
    files.sort();
    let bytes: Vec<u8> = files.into_iter().flat_map(|(_, bytes)| bytes).collect();
    records(&input, &bytes, kind)
}

fn records(input: &Input, bytes: &[u8], kind: Kind) -> Result<LabelledImages> {
    let record = kind.labels() + PICTURE;
    if !bytes.len().is_multiple_of(record) {
        let reason = format!("has {} bytes, which is not a whole number of records of {record} bytes", bytes.len());
        return Err(input.damaged(reason));
    }
    let count = bytes.len() / record;
    let mut pixels = Vec::with_capacity(count * PICTURE);
    let mut labels = Vec::with_capacity(count);
    for (number, record) in bytes.chunks_exact(record).enumerate() {
        let (label, picture) = record.split_at(kind.labels());
        let label = i32::from(label[kind.labels() - 1]);
        if label as usize >= kind.classes() {
            let reason = format!("has the label {label} in record {number}, but there are {} classes", kind.classes());
            return Err(input.damaged(reason));
        }
        labels.push(label);
        pixels.extend_from_slice(picture);
    }
    LabelledImages::new(Images::new([count, 3, 32, 32], pixels)?, labels, kind.names())
}
