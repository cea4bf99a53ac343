//! Images of one size as bytes, with or without labels.

use crate::error::{Error, Result};
use bilevel::data::Classes;
use bilevel::{Array, DType};

/// Images of one size, 8 bits per channel, image by image and channel by channel: `[n, c, h, w]`.
///
/// ```
/// use bilevel::DType;
/// use bilevel_data::Images;
/// let images = Images::new([2, 1, 1, 2], vec![0, 255, 51, 102])?;
/// assert_eq!(images.image(1), [51, 102]);
/// let array = images.to_array(DType::F64)?;
/// assert_eq!((array.shape(), array.to_f64()), (&[2, 1, 1, 2][..], vec![0.0, 1.0, 0.2, 0.4]));
/// # Ok::<(), bilevel_data::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Images {
    shape: [usize; 4],
    pixels: Vec<u8>,
}

impl Images {
    /// Pixels in the shape `[n, c, h, w]`; an error if there are too few or too many.
    pub fn new(shape: [usize; 4], pixels: Vec<u8>) -> Result<Self> {
        if bilevel::graph::shape::element_count(&shape) != pixels.len() {
            let reason = format!("{} pixels do not fill images of the shape {shape:?}", pixels.len());
            return Err(Error::request(reason));
        }
        Ok(Images { shape, pixels })
    }

    /// The shape `[n, c, h, w]`.
    pub fn shape(&self) -> [usize; 4] {
        self.shape
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.shape[0]
    }

    /// All pixels, in the order of the shape.
    pub fn pixels(&self) -> &[u8] {
        &self.pixels
    }

    /// Bytes of one image.
    pub fn size(&self) -> usize {
        self.shape[1..].iter().product()
    }

    /// The pixels of one image; empty if there is no such image.
    pub fn image(&self, number: usize) -> &[u8] {
        let size = self.size();
        number.checked_mul(size).and_then(|from| self.pixels.get(from..)?.get(..size)).unwrap_or_default()
    }

    /// The images at these places, in this order.
    pub fn take(&self, rows: &[usize]) -> Result<Self> {
        check_rows(rows, self.count())?;
        let mut pixels = Vec::with_capacity(rows.len() * self.size());
        rows.iter().for_each(|row| pixels.extend_from_slice(self.image(*row)));
        let [_, channels, height, width] = self.shape;
        Images::new([rows.len(), channels, height, width], pixels)
    }

    /// As floats from 0 to 1: pixel/255, in the shape `[n, c, h, w]`.
    pub fn to_array(&self, dtype: DType) -> Result<Array> {
        Ok(match dtype {
            DType::F32 => {
                let values = self.pixels.iter().map(|pixel| (f64::from(*pixel) / 255.0) as f32).collect();
                Array::from_f32(self.shape, values)?
            }
            DType::F64 => {
                Array::from_f64(self.shape, self.pixels.iter().map(|pixel| f64::from(*pixel) / 255.0).collect())?
            }
            DType::I32 => Array::from_i32(self.shape, self.pixels.iter().map(|pixel| i32::from(*pixel)).collect())?,
        })
    }
}

/// Images, each with a class.
///
/// ```
/// use bilevel_data::{Images, LabelledImages};
/// let images = Images::new([3, 1, 1, 1], vec![10, 20, 30])?;
/// let set = LabelledImages::new(images, vec![1, 0, 1], vec!["cat".into(), "dog".into()])?;
/// assert_eq!(set.to_classes()?.rows(1), [0, 2]);
/// assert_eq!(set.take(&[1])?.images.pixels(), [20]);
/// # Ok::<(), bilevel_data::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LabelledImages {
    /// The images.
    pub images: Images,
    /// The class of each, as its number in `classes`.
    pub labels: Vec<i32>,
    /// The names of the classes.
    pub classes: Vec<String>,
}

impl LabelledImages {
    /// Images with labels in 0 … number of classes − 1.
    pub fn new(images: Images, labels: Vec<i32>, classes: Vec<String>) -> Result<Self> {
        if labels.len() != images.count() {
            let reason = format!("there are {} labels for {} images", labels.len(), images.count());
            return Err(Error::request(reason));
        }
        if let Some(row) = labels.iter().position(|label| !(0..classes.len() as i64).contains(&i64::from(*label))) {
            let reason = format!("image {row} has the label {}, but there are {} classes", labels[row], classes.len());
            return Err(Error::request(reason));
        }
        Ok(LabelledImages { images, labels, classes })
    }

    /// How many images there are.
    pub fn count(&self) -> usize {
        self.labels.len()
    }

    /// Those at these places, in this order.
    pub fn take(&self, rows: &[usize]) -> Result<Self> {
        let images = self.images.take(rows)?;
        let labels = rows.iter().map(|row| self.labels[*row]).collect();
        Ok(LabelledImages { images, labels, classes: self.classes.clone() })
    }

    /// The images of these classes, which are renumbered in this order; a missing class is an error.
    ///
    /// ```
    /// use bilevel_data::{Images, LabelledImages};
    /// let images = Images::new([3, 1, 1, 1], vec![10, 20, 30])?;
    /// let set = LabelledImages::new(images, vec![1, 0, 1], vec!["cat".into(), "dog".into()])?;
    /// let dogs = set.of_classes(&[1])?;
    /// assert_eq!((dogs.images.pixels(), &dogs.labels[..], &*dogs.classes[0]), (&[10, 30][..], &[0, 0][..], "dog"));
    /// # Ok::<(), bilevel_data::Error>(())
    /// ```
    pub fn of_classes(&self, classes: &[usize]) -> Result<Self> {
        let all = self.to_classes()?;
        let (mut rows, mut labels, mut names) = (vec![], vec![], vec![]);
        for (label, &class) in classes.iter().enumerate() {
            let there = self.classes.len();
            let missing = || Error::request(format!("there is no class {class}; there are {there}"));
            names.push(self.classes.get(class).ok_or_else(missing)?.clone());
            let own = all.rows(class);
            rows.extend(own.iter().map(|row| *row as usize));
            labels.extend(own.iter().map(|_| label as i32));
        }
        LabelledImages::new(self.images.take(&rows)?, labels, names)
    }

    /// These and then others of the same size, whose classes come after these.
    ///
    /// ```
    /// use bilevel_data::{Images, LabelledImages};
    /// let one = |name: &str| LabelledImages::new(Images::new([1, 1, 1, 1], vec![7])?, vec![0], vec![name.into()]);
    /// let both = one("cat")?.and(one("dog")?)?;
    /// assert_eq!((both.labels, both.classes), (vec![0, 1], vec!["cat".to_string(), "dog".into()]));
    /// # Ok::<(), bilevel_data::Error>(())
    /// ```
    pub fn and(self, others: Self) -> Result<Self> {
        let ([count, rest @ ..], [more, same @ ..]) = (self.images.shape(), others.images.shape());
        if rest != same {
            return Err(Error::request(format!("images of the shape {rest:?} and of {same:?} cannot be one set")));
        }
        let [channels, height, width] = rest;
        let before = self.classes.len() as i32;
        LabelledImages::new(
            Images::new([count + more, channels, height, width], [self.images.pixels, others.images.pixels].concat())?,
            self.labels.into_iter().chain(others.labels.into_iter().map(|label| label + before)).collect(),
            [self.classes, others.classes].concat(),
        )
    }

    /// Adds three further classes for each: its images turned by one, two and three quarters of a circle, which of
    /// characters are other characters. The images must be square.
    ///
    /// ```
    /// use bilevel_data::{Images, LabelledImages};
    /// let images = Images::new([1, 1, 2, 2], vec![1, 2, 3, 4])?;
    /// let turned = LabelledImages::new(images, vec![0], vec!["a".into()])?.with_quarter_turns()?;
    /// assert_eq!(turned.classes, ["a", "a turned by 90°", "a turned by 180°", "a turned by 270°"]);
    /// assert_eq!([1, 2, 3].map(|row| turned.images.image(row).to_vec()), [[2, 4, 1, 3], [4, 3, 2, 1], [3, 1, 4, 2]]);
    /// # Ok::<(), bilevel_data::Error>(())
    /// ```
    pub fn with_quarter_turns(&self) -> Result<Self> {
        let [count, channels, height, width] = self.images.shape();
        if height != width {
            let reason = format!("only square images can be turned by a quarter, but these are {height} by {width}");
            return Err(Error::request(reason));
        }
        let (mut pixels, mut labels, mut classes) =
            (self.images.pixels().to_vec(), self.labels.clone(), self.classes.clone());
        for turns in 1..4 {
            let before = &pixels[pixels.len() - self.images.pixels().len()..];
            let turn = |plane: &[u8]| -> Vec<u8> {
                (0..width)
                    .rev()
                    .flat_map(|column| (0..height).map(move |row| row * width + column))
                    .map(|at| plane[at])
                    .collect()
            };
            let turned: Vec<u8> = before.chunks(height.max(1) * width.max(1)).flat_map(turn).collect();
            pixels.extend(turned);
            labels.extend(self.labels.iter().map(|label| label + (turns * self.classes.len()) as i32));
            classes.extend(self.classes.iter().map(|class| format!("{class} turned by {}°", 90 * turns)));
        }
        LabelledImages::new(Images::new([4 * count, channels, height, width], pixels)?, labels, classes)
    }

    /// The labels for a problem: `i32[n]`.
    pub fn label_array(&self) -> Result<Array> {
        Ok(Array::from_i32([self.labels.len()], self.labels.clone())?)
    }

    /// The classes for few-shot episodes; see [`bilevel::Scope::shots`].
    pub fn to_classes(&self) -> Result<Classes> {
        let mut rows = vec![vec![]; self.classes.len()];
        self.labels.iter().enumerate().for_each(|(row, label)| rows[*label as usize].push(row));
        Ok(Classes::new(self.classes.iter().cloned().zip(rows))?)
    }
}

/// Refuses rows that are not there.
pub(crate) fn check_rows(rows: &[usize], count: usize) -> Result<()> {
    match rows.iter().find(|row| **row >= count) {
        Some(row) => Err(Error::request(format!("there is no row {row}; there are {count}"))),
        None => Ok(()),
    }
}
