//! Oxford-IIIT Pet: cats and dogs of 37 breeds with about 200 images each, of many sizes.
//!
//! Fetched and unpacked, the images are in `oxford-pets/unpacked-images` and the official split in
//! `oxford-pets/unpacked-annotations`. A copy that is laid out as SPLIT/CLASS/NAME.jpg, in a folder or a zip file, is
//! read by [`pictures::read_cached`](crate::readers::pictures::read_cached), `under("SPLIT")` and `by_folder()`.

use crate::registry::{Access, Dataset, Remote};

/// Its name, licence, source and files.
pub const DATASET: Dataset = Dataset {
    name: "oxford-pets",
    summary: "cats and dogs of 37 breeds, 7 349 colour images",
    licence: "CC BY-SA 4.0",
    home: "https://www.robots.ox.ac.uk/~vgg/data/pets/",
    folder: "oxford-pets",
    access: Access::Files(&[
        Remote {
            name: "images.tar.gz",
            url: "https://www.robots.ox.ac.uk/~vgg/data/pets/data/images.tar.gz",
            bytes: 791_918_971,
            sha256: "67195c5e1c01f1ab5f9b6a5d22b8c27a580d896ece458917e61d459337fa318d",
            unpack: Some("unpacked-images"),
        },
        Remote {
            name: "annotations.tar.gz",
            url: "https://www.robots.ox.ac.uk/~vgg/data/pets/data/annotations.tar.gz",
            bytes: 19_173_078,
            sha256: "52425fb6de5c424942b7626b428656fcbd798db970a937df61750c0f1d358e91",
            unpack: Some("unpacked-annotations"),
        },
    ]),
};
